//! The keywords of ssh_config: which there are, what each takes, and in which form its values are kept.
//!
//! Uses `jump` and `port`. A keyword that means nothing to this program is known all the same, as a file that ssh reads must be read here.

use super::jump::Jump;
use super::port::port;

/// What a keyword takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Anything: this program has no use for it.
    Ignored,
    /// One word.
    Text,
    /// yes or no; kept as such.
    Flag,
    /// One of these; yes and no as with a flag.
    Choice(&'static [&'static str]),
    /// 0 to 2³¹ − 1.
    Number,
    /// 1 to 65535.
    Port,
    /// `10` or `1m30s`, kept in seconds; `none` leaves it unset, so that a later line may set it.
    Time,
    /// Several words; `none` stands alone.
    Words,
    /// One word a line, and every line counts.
    Each,
    /// The rest of the line as it is.
    Command,
    /// Jump hosts, or `none`.
    Jumps,
    /// Bytes and, where it is wanted, a time; kept as both.
    Rekey,
}

/// A keyword of ssh_config.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::remote) struct Keyword {
    /// As the manual writes it.
    pub(in crate::remote) name: &'static str,
    pub(super) kind: Kind,
}

/// Every keyword that has a meaning here.
static USED: [Keyword; 51] = [
    used("AddressFamily", Kind::Choice(&["any", "inet", "inet6"])),
    used("BatchMode", Kind::Flag),
    used("BindAddress", Kind::Text),
    used("BindInterface", Kind::Text),
    used("CanonicalizeHostname", Kind::Choice(&["yes", "no", "always"])),
    used("CanonicalizePermittedCNAMEs", Kind::Words),
    used("CASignatureAlgorithms", Kind::Text),
    used("CertificateFile", Kind::Each),
    used("CheckHostIP", Kind::Flag),
    used("Ciphers", Kind::Text),
    used("Compression", Kind::Flag),
    used("ConnectionAttempts", Kind::Number),
    used("ConnectTimeout", Kind::Time),
    used("GlobalKnownHostsFile", Kind::Words),
    used("HashKnownHosts", Kind::Flag),
    used("HostKeyAlgorithms", Kind::Text),
    used("HostKeyAlias", Kind::Text),
    used("HostName", Kind::Text),
    used("IdentitiesOnly", Kind::Flag),
    used("IdentityAgent", Kind::Text),
    used("IdentityFile", Kind::Each),
    used("IgnoreUnknown", Kind::Text),
    used("KbdInteractiveAuthentication", Kind::Flag),
    used("KexAlgorithms", Kind::Text),
    used("KnownHostsCommand", Kind::Command),
    used("MACs", Kind::Text),
    used("NoHostAuthenticationForLocalhost", Kind::Flag),
    used("NumberOfPasswordPrompts", Kind::Number),
    used("PasswordAuthentication", Kind::Flag),
    used("Port", Kind::Port),
    used("PreferredAuthentications", Kind::Text),
    used("ProxyCommand", Kind::Command),
    used("ProxyJump", Kind::Jumps),
    used("ProxyUseFdpass", Kind::Flag),
    used("PubkeyAcceptedAlgorithms", Kind::Text),
    used("PubkeyAuthentication", Kind::Choice(&["yes", "no", "unbound", "host-bound"])),
    used("RefuseConnection", Kind::Text),
    used("RekeyLimit", Kind::Rekey),
    used("RequiredRSASize", Kind::Number),
    used("RevokedHostKeys", Kind::Words),
    used("SecurityKeyProvider", Kind::Text),
    used("ServerAliveCountMax", Kind::Number),
    used("ServerAliveInterval", Kind::Time),
    used("StrictHostKeyChecking", Kind::Choice(&["yes", "no", "ask", "off", "accept-new"])),
    used("TCPKeepAlive", Kind::Flag),
    used("User", Kind::Text),
    used("UserKnownHostsFile", Kind::Words),
    used("VerifyHostKeyDNS", Kind::Choice(&["yes", "no", "ask"])),
    // Lines of these are statements of their own; they stand here to be known.
    used("Host", Kind::Words),
    used("Match", Kind::Command),
    used("Include", Kind::Words),
];

const fn used(name: &'static str, kind: Kind) -> Keyword {
    Keyword { name, kind }
}

/// Older names.
const ALIASES: [(&str, &str); 10] = [
    ("ChallengeResponseAuthentication", "KbdInteractiveAuthentication"),
    ("DSAAuthentication", "PubkeyAuthentication"),
    ("IdentityFile2", "IdentityFile"),
    ("KeepAlive", "TCPKeepAlive"),
    ("ProtocolKeepAlives", "ServerAliveInterval"),
    ("PubkeyAcceptedKeyTypes", "PubkeyAcceptedAlgorithms"),
    ("RSAMinSize", "RequiredRSASize"),
    ("SetupTimeOut", "ServerAliveInterval"),
    ("SkeyAuthentication", "KbdInteractiveAuthentication"),
    ("TISAuthentication", "KbdInteractiveAuthentication"),
];

static IGNORED: Keyword = used("", Kind::Ignored);

/// Known to OpenSSH, to what distributions add to it, or to its past; without a meaning here.
const KNOWN: &str = "addkeystoagent canonicaldomains canonicalizefallbacklocal canonicalizemaxdots channeltimeout clearallforwardings controlmaster \
    controlpath controlpersist dynamicforward enableescapecommandline enablesshkeysign escapechar exitonforwardfailure fingerprinthash \
    forkafterauthentication forwardagent forwardx11 forwardx11timeout forwardx11trusted gatewayports gssapiauthentication \
    gssapidelegatecredentials hostbasedacceptedalgorithms hostbasedauthentication hostbasedkeytypes ipqos kbdinteractivedevices localcommand \
    localforward loglevel logverbose obscurekeystroketiming permitlocalcommand permitremoteopen pkcs11provider remotecommand remoteforward \
    requesttty sendenv sessiontype setenv smartcarddevice stdinnull streamlocalbindmask streamlocalbindunlink syslogfacility tag tunnel \
    tunneldevice updatehostkeys versionaddendum visualhostkey warnweakcrypto xauthlocation \
    afstokenpassing cipher compressionlevel fallbacktorsh globalknownhostsfile2 kerberosauthentication kerberostgtpassing protocol \
    rhostsauthentication rhostsrsaauthentication rsaauthentication useprivilegedport userknownhostsfile2 useroaming usersh \
    gssapiclientidentity gssapikexalgorithms gssapikeyexchange gssapirenewalforcesrekey gssapiserveridentity gssapitrustdns";

/// The keyword of a name, whatever its case.
pub(super) fn lookup(name: &str) -> Option<&'static Keyword> {
    let of = |name: &str| USED.iter().find(|k| k.name.eq_ignore_ascii_case(name));
    let older = || ALIASES.iter().find(|(old, _)| old.eq_ignore_ascii_case(name)).and_then(|(_, new)| of(new));
    // Apple's ssh alone knows it; elsewhere ssh refuses it without IgnoreUnknown, and so do we.
    let apple = || cfg!(target_os = "macos") && name.eq_ignore_ascii_case("UseKeychain");
    let known = || (KNOWN.split_whitespace().any(|k| k.eq_ignore_ascii_case(name)) || apple()).then_some(&IGNORED);
    of(name).or_else(older).or_else(known)
}

/// The names of all keywords that are set to values.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    USED.iter().map(|k| k.name).filter(|n| !matches!(*n, "Host" | "Match" | "Include"))
}

impl Keyword {
    /// Brings the arguments of a line into the form in which they are kept. `rest`: all behind the keyword, as it is written. An error is a
    /// fragment.
    pub(super) fn values(&self, words: Vec<String>, rest: &str) -> Result<Vec<String>, String> {
        let name = self.name;
        if self.kind == Kind::Ignored {
            return Ok(Vec::new());
        }
        if self.kind == Kind::Command {
            return Ok(vec![rest.trim_start_matches([' ', '\t', '=']).to_owned()]);
        }
        if self.kind == Kind::Jumps {
            let text = rest.trim_start_matches([' ', '\t', '=']).split('#').next().unwrap_or_default().trim_end();
            if text.eq_ignore_ascii_case("none") {
                return Ok(vec!["none".to_owned()]);
            }
            return Jump::list(text).map(|_| vec![text.to_owned()]);
        }
        let Some(first) = words.first().filter(|_| words.iter().all(|w| !w.is_empty())) else {
            return Err(format!("{name} wants a value"));
        };
        let most = match self.kind {
            Kind::Words => usize::MAX,
            Kind::Rekey => 2,
            _ => 1,
        };
        if let Some(extra) = words.get(most) {
            return Err(format!("{name} takes one value, and `{extra}` is left over; write quotes around a value with blanks"));
        }
        let wrong = |wanted: &str| format!("{name} wants {wanted}, not `{first}`");
        let one = |value: String| Ok(vec![value]);
        match self.kind {
            Kind::Flag => choice(first, &["yes", "no"]).map_or_else(|| Err(wrong("yes or no")), one),
            Kind::Choice(of) => choice(first, of).map_or_else(|| Err(wrong(&format!("one of {}", of.join(", ")))), one),
            Kind::Number => match first.parse::<u32>().ok().filter(|n| i32::try_from(*n).is_ok()) {
                Some(number) => one(number.to_string()),
                None => Err(wrong("a number")),
            },
            Kind::Port => match port(first) {
                Some(port) => one(port.to_string()),
                None => Err(wrong("a port from 1 to 65535, or a service of /etc/services")),
            },
            Kind::Time if first == "none" => Ok(Vec::new()),
            Kind::Time => seconds(first).map_or_else(|| Err(wrong("a time such as 10 or 1m30s, or none")), one),
            Kind::Words if words.len() > 1 && words.iter().any(|w| w.eq_ignore_ascii_case("none")) => {
                Err(format!("{name}: `none` must stand alone"))
            }
            Kind::Rekey => rekey(&words).ok_or_else(|| wrong("an amount such as 1G, and a time if need be")),
            Kind::Text | Kind::Each | Kind::Words | Kind::Ignored | Kind::Command | Kind::Jumps => Ok(words),
        }
    }
}

fn choice(word: &str, of: &[&str]) -> Option<String> {
    let word = word.to_ascii_lowercase();
    let plain = match word.as_str() {
        "true" => "yes",
        "false" => "no",
        other => other,
    };
    of.contains(&plain).then(|| if plain == "off" { "no" } else { plain }.to_owned())
}

/// Reads `90`, `1m30s`, `2h`, `1d`, `1w`.
fn seconds(text: &str) -> Option<String> {
    let mut total: i32 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number: i32 = rest.get(..digits)?.parse().ok()?;
        let mut after = rest.get(digits..)?.chars();
        let unit = match after.next().map(|c| c.to_ascii_lowercase()) {
            None | Some('s') => 1,
            Some('m') => 60,
            Some('h') => 3600,
            Some('d') => 86_400,
            Some('w') => 604_800,
            Some(_) => return None,
        };
        total = total.checked_add(number.checked_mul(unit)?)?;
        rest = after.as_str();
    }
    (!text.is_empty()).then(|| total.to_string())
}

/// `1G`, `default 1h`: bytes and seconds, 0 where the default holds.
fn rekey(words: &[String]) -> Option<Vec<String>> {
    let amount = words.first()?;
    let bytes = if amount == "default" {
        0
    } else {
        let digits = amount.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let shift = match amount.get(digits.len()..)?.to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" => 10,
            "m" => 20,
            "g" => 30,
            "t" => 40,
            _ => return None,
        };
        digits.parse::<u64>().ok()?.checked_mul(1 << shift)?
    };
    let time = words.get(1).filter(|t| *t != "none").map_or(Some("0".to_owned()), |t| seconds(t))?;
    (bytes == 0 || bytes >= 16).then(|| vec![bytes.to_string(), time])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(keyword: &str, words: &[&str]) -> Result<Vec<String>, String> {
        let keyword = lookup(keyword).expect("known");
        keyword.values(words.iter().map(|w| (*w).to_owned()).collect(), &words.join(" "))
    }

    #[test]
    fn keywords_are_known_by_every_name_and_once() {
        assert_eq!(lookup("hostname").map(|k| k.name), Some("HostName"));
        assert_eq!(lookup("challengeresponseAUTHENTICATION").map(|k| k.name), Some("KbdInteractiveAuthentication"));
        assert_eq!(lookup("GSSAPIAuthentication").map(|k| k.kind), Some(Kind::Ignored));
        assert_eq!(lookup("hostnames"), None);
        assert!(ALIASES.iter().all(|(_, new)| USED.iter().any(|k| k.name == *new)));
        assert!(KNOWN.split_whitespace().all(|k| !USED.iter().any(|u| u.name.eq_ignore_ascii_case(k))), "a keyword stands once");
    }

    #[test]
    fn values_are_kept_in_one_form() {
        for (keyword, words, kept) in [
            ("Compression", vec!["TRUE"], vec!["yes"]),
            ("StrictHostKeyChecking", vec!["off"], vec!["no"]),
            ("ConnectTimeout", vec!["1m30s"], vec!["90"]),
            ("ServerAliveInterval", vec!["none"], vec![]),
            ("RekeyLimit", vec!["1G", "1h"], vec!["1073741824", "3600"]),
            ("RekeyLimit", vec!["default", "none"], vec!["0", "0"]),
            ("UserKnownHostsFile", vec!["a b", "c"], vec!["a b", "c"]),
            ("ProxyCommand", vec!["=", "nc %h %p # x"], vec!["nc %h %p # x"]),
            ("ProxyJump", vec!["a,b # x"], vec!["a,b"]),
            ("ProxyJump", vec!["NONE"], vec!["none"]),
            ("SendEnv", vec!["LC_*", "=", ""], vec![]),
        ] {
            assert_eq!(values(keyword, &words).expect(keyword), kept, "{keyword} {words:?}");
        }
    }

    #[test]
    fn bad_values_say_what_would_be_right() {
        for (keyword, words, says) in [
            ("Port", vec!["0"], "Port wants a port from 1 to 65535, or a service of /etc/services, not `0`"),
            ("Port", vec!["sssh"], "Port wants a port from 1 to 65535, or a service of /etc/services, not `sssh`"),
            ("Port", vec![], "Port wants a value"),
            ("User", vec![""], "User wants a value"),
            ("IdentityFile", vec!["a", "b"], "IdentityFile takes one value, and `b` is left over; write quotes around a value with blanks"),
            ("BatchMode", vec!["perhaps"], "BatchMode wants yes or no, not `perhaps`"),
            ("AddressFamily", vec!["v4"], "AddressFamily wants one of any, inet, inet6, not `v4`"),
            ("ServerAliveCountMax", vec!["-1"], "ServerAliveCountMax wants a number, not `-1`"),
            ("ConnectTimeout", vec!["5y"], "ConnectTimeout wants a time such as 10 or 1m30s, or none, not `5y`"),
            ("RekeyLimit", vec!["4"], "RekeyLimit wants an amount such as 1G, and a time if need be, not `4`"),
            ("UserKnownHostsFile", vec!["a", "none"], "UserKnownHostsFile: `none` must stand alone"),
            ("ProxyJump", vec!["b:0"], "`b:0` is not a jump host ([user@]host[:port])"),
        ] {
            assert_eq!(values(keyword, &words), Err(says.to_owned()));
        }
    }
}
