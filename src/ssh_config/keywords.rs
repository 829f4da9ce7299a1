//! The keywords of ssh_config: which there are, what each takes, and in which form its values are kept.
//!
//! A keyword that means nothing to this program is known all the same, as a file that ssh reads must be read here.

use super::jump::JumpHost;
use super::port::parse_port;

/// What a keyword takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeywordValueKind {
    /// Anything: this program has no use for it.
    Ignored,
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
    Repeated,
    /// The rest of the line as it is.
    RestOfLine,
    /// Jump hosts, or `none`.
    JumpHosts,
    /// Bytes and, where it is wanted, a time; kept as both.
    Rekey,
}

/// A keyword of ssh_config.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SshKeyword {
    /// As the manual writes it.
    pub(crate) name: &'static str,
    pub(crate) value_kind: KeywordValueKind,
}

/// Every keyword that has a meaning here.
static KEYWORDS: [SshKeyword; 51] = [
    keyword("AddressFamily", KeywordValueKind::Choice(&["any", "inet", "inet6"])),
    keyword("BatchMode", KeywordValueKind::Flag),
    keyword("BindAddress", KeywordValueKind::Text),
    keyword("BindInterface", KeywordValueKind::Text),
    keyword("CanonicalizeHostname", KeywordValueKind::Choice(&["yes", "no", "always"])),
    keyword("CanonicalizePermittedCNAMEs", KeywordValueKind::Words),
    keyword("CASignatureAlgorithms", KeywordValueKind::Text),
    keyword("CertificateFile", KeywordValueKind::Repeated),
    keyword("CheckHostIP", KeywordValueKind::Flag),
    keyword("Ciphers", KeywordValueKind::Text),
    keyword("Compression", KeywordValueKind::Flag),
    keyword("ConnectionAttempts", KeywordValueKind::Number),
    keyword("ConnectTimeout", KeywordValueKind::Time),
    keyword("GlobalKnownHostsFile", KeywordValueKind::Words),
    keyword("HashKnownHosts", KeywordValueKind::Flag),
    keyword("HostKeyAlgorithms", KeywordValueKind::Text),
    keyword("HostKeyAlias", KeywordValueKind::Text),
    keyword("HostName", KeywordValueKind::Text),
    keyword("IdentitiesOnly", KeywordValueKind::Flag),
    keyword("IdentityAgent", KeywordValueKind::Text),
    keyword("IdentityFile", KeywordValueKind::Repeated),
    keyword("IgnoreUnknown", KeywordValueKind::Text),
    keyword("KbdInteractiveAuthentication", KeywordValueKind::Flag),
    keyword("KexAlgorithms", KeywordValueKind::Text),
    keyword("KnownHostsCommand", KeywordValueKind::RestOfLine),
    keyword("MACs", KeywordValueKind::Text),
    keyword("NoHostAuthenticationForLocalhost", KeywordValueKind::Flag),
    keyword("NumberOfPasswordPrompts", KeywordValueKind::Number),
    keyword("PasswordAuthentication", KeywordValueKind::Flag),
    keyword("Port", KeywordValueKind::Port),
    keyword("PreferredAuthentications", KeywordValueKind::Text),
    keyword("ProxyCommand", KeywordValueKind::RestOfLine),
    keyword("ProxyJump", KeywordValueKind::JumpHosts),
    keyword("ProxyUseFdpass", KeywordValueKind::Flag),
    keyword("PubkeyAcceptedAlgorithms", KeywordValueKind::Text),
    keyword("PubkeyAuthentication", KeywordValueKind::Choice(&["yes", "no", "unbound", "host-bound"])),
    keyword("RefuseConnection", KeywordValueKind::Text),
    keyword("RekeyLimit", KeywordValueKind::Rekey),
    keyword("RequiredRSASize", KeywordValueKind::Number),
    keyword("RevokedHostKeys", KeywordValueKind::Words),
    keyword("SecurityKeyProvider", KeywordValueKind::Text),
    keyword("ServerAliveCountMax", KeywordValueKind::Number),
    keyword("ServerAliveInterval", KeywordValueKind::Time),
    keyword("StrictHostKeyChecking", KeywordValueKind::Choice(&["yes", "no", "ask", "off", "accept-new"])),
    keyword("TCPKeepAlive", KeywordValueKind::Flag),
    keyword("User", KeywordValueKind::Text),
    keyword("UserKnownHostsFile", KeywordValueKind::Words),
    keyword("VerifyHostKeyDNS", KeywordValueKind::Choice(&["yes", "no", "ask"])),
    // Lines of these are statements of their own; they stand here to be known.
    keyword("Host", KeywordValueKind::Words),
    keyword("Match", KeywordValueKind::RestOfLine),
    keyword("Include", KeywordValueKind::Words),
];

const fn keyword(name: &'static str, kind: KeywordValueKind) -> SshKeyword {
    SshKeyword { name, value_kind: kind }
}

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

static IGNORED_KEYWORD: SshKeyword = keyword("", KeywordValueKind::Ignored);

/// Known to OpenSSH, to what distributions add to it, or to its past; without a meaning here.
const IGNORED_NAMES: &str = "addkeystoagent canonicaldomains canonicalizefallbacklocal canonicalizemaxdots channeltimeout clearallforwardings controlmaster \
    controlpath controlpersist dynamicforward enableescapecommandline enablesshkeysign escapechar exitonforwardfailure fingerprinthash \
    forkafterauthentication forwardagent forwardx11 forwardx11timeout forwardx11trusted gatewayports gssapiauthentication \
    gssapidelegatecredentials hostbasedacceptedalgorithms hostbasedauthentication hostbasedkeytypes ipqos kbdinteractivedevices localcommand \
    localforward loglevel logverbose obscurekeystroketiming permitlocalcommand permitremoteopen pkcs11provider remotecommand remoteforward \
    requesttty sendenv sessiontype setenv smartcarddevice stdinnull streamlocalbindmask streamlocalbindunlink syslogfacility tag tunnel \
    tunneldevice updatehostkeys versionaddendum visualhostkey warnweakcrypto xauthlocation \
    afstokenpassing cipher compressionlevel fallbacktorsh globalknownhostsfile2 kerberosauthentication kerberostgtpassing protocol \
    rhostsauthentication rhostsrsaauthentication rsaauthentication useprivilegedport userknownhostsfile2 useroaming usersh \
    gssapiclientidentity gssapikexalgorithms gssapikeyexchange gssapirenewalforcesrekey gssapiserveridentity gssapitrustdns";

/// The keyword of a name, ignoring case.
pub(crate) fn find_keyword(name: &str) -> Option<&'static SshKeyword> {
    let of = |name: &str| KEYWORDS.iter().find(|k| k.name.eq_ignore_ascii_case(name));
    let older = || ALIASES.iter().find(|(old, _)| old.eq_ignore_ascii_case(name)).and_then(|(_, new)| of(new));
    // Apple's ssh alone knows it; elsewhere ssh refuses it without IgnoreUnknown, and so do we.
    let apple = || cfg!(target_os = "macos") && name.eq_ignore_ascii_case("UseKeychain");
    let known = || (IGNORED_NAMES.split_whitespace().any(|k| k.eq_ignore_ascii_case(name)) || apple()).then_some(&IGNORED_KEYWORD);
    of(name).or_else(older).or_else(known)
}

/// The names of all keywords that are set to values.
#[cfg(test)]
pub(crate) fn keyword_names() -> impl Iterator<Item = &'static str> {
    KEYWORDS.iter().map(|k| k.name).filter(|n| !matches!(*n, "Host" | "Match" | "Include"))
}

impl SshKeyword {
    /// Brings the arguments of a line into the form in which they are kept. `rest`: all behind the keyword, as it is written. An error is a
    /// fragment.
    pub(crate) fn normalize_values(&self, words: Vec<String>, rest: &str) -> Result<Vec<String>, String> {
        let name = self.name;
        if self.value_kind == KeywordValueKind::Ignored {
            return Ok(Vec::new());
        }
        if self.value_kind == KeywordValueKind::RestOfLine {
            return Ok(vec![rest.trim_start_matches([' ', '\t', '=']).to_owned()]);
        }
        if self.value_kind == KeywordValueKind::JumpHosts {
            let text = rest.trim_start_matches([' ', '\t', '=']).split('#').next().unwrap_or_default().trim_end();
            if text.eq_ignore_ascii_case("none") {
                return Ok(vec!["none".to_owned()]);
            }
            return JumpHost::parse_list(text).map(|_| vec![text.to_owned()]);
        }
        let Some(first) = words.first().filter(|_| words.iter().all(|w| !w.is_empty())) else {
            return Err(format!("{name} needs a value"));
        };
        let most = match self.value_kind {
            KeywordValueKind::Words => usize::MAX,
            KeywordValueKind::Rekey => 2,
            _ => 1,
        };
        if let Some(extra) = words.get(most) {
            return Err(format!("{name} takes one value, `{extra}` is extra; put quotes around a value with spaces"));
        }
        let wrong = |wanted: &str| format!("{name} needs {wanted}, not `{first}`");
        let one = |value: String| Ok(vec![value]);
        match self.value_kind {
            KeywordValueKind::Flag => parse_choice(first, &["yes", "no"]).map_or_else(|| Err(wrong("yes or no")), one),
            KeywordValueKind::Choice(of) => parse_choice(first, of).map_or_else(|| Err(wrong(&format!("one of {}", of.join(", ")))), one),
            KeywordValueKind::Number => match first.parse::<u32>().ok().filter(|n| i32::try_from(*n).is_ok()) {
                Some(number) => one(number.to_string()),
                None => Err(wrong("a number")),
            },
            KeywordValueKind::Port => match parse_port(first) {
                Some(port) => one(port.to_string()),
                None => Err(wrong("a port from 1 to 65535, or a service of /etc/services")),
            },
            KeywordValueKind::Time if first == "none" => Ok(Vec::new()),
            KeywordValueKind::Time => parse_seconds(first).map_or_else(|| Err(wrong("a duration such as 10 or 1m30s, or none")), one),
            KeywordValueKind::Words if words.len() > 1 && words.iter().any(|w| w.eq_ignore_ascii_case("none")) => {
                Err(format!("{name}: `none` must stand alone"))
            }
            KeywordValueKind::Rekey => parse_rekey_limit(&words).ok_or_else(|| wrong("an amount such as 1G, and optionally a time")),
            KeywordValueKind::Text
            | KeywordValueKind::Repeated
            | KeywordValueKind::Words
            | KeywordValueKind::Ignored
            | KeywordValueKind::RestOfLine
            | KeywordValueKind::JumpHosts => Ok(words),
        }
    }
}

fn parse_choice(word: &str, of: &[&str]) -> Option<String> {
    let word = word.to_ascii_lowercase();
    let plain = match word.as_str() {
        "true" => "yes",
        "false" => "no",
        other => other,
    };
    of.contains(&plain).then(|| if plain == "off" { "no" } else { plain }.to_owned())
}

/// Reads `90`, `1m30s`, `2h`, `1d`, `1w`.
fn parse_seconds(text: &str) -> Option<String> {
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
fn parse_rekey_limit(words: &[String]) -> Option<Vec<String>> {
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
    let time = words.get(1).filter(|t| *t != "none").map_or(Some("0".to_owned()), |t| parse_seconds(t))?;
    (bytes == 0 || bytes >= 16).then(|| vec![bytes.to_string(), time])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalize(keyword: &str, words: &[&str]) -> Result<Vec<String>, String> {
        let keyword = find_keyword(keyword).expect("known");
        keyword.normalize_values(words.iter().map(|w| (*w).to_owned()).collect(), &words.join(" "))
    }

    #[test]
    fn keywords_are_found_by_name_and_alias() {
        assert_eq!(find_keyword("hostname").map(|k| k.name), Some("HostName"));
        assert_eq!(find_keyword("challengeresponseAUTHENTICATION").map(|k| k.name), Some("KbdInteractiveAuthentication"));
        assert_eq!(find_keyword("GSSAPIAuthentication").map(|k| k.value_kind), Some(KeywordValueKind::Ignored));
        assert_eq!(find_keyword("hostnames"), None);
        assert!(ALIASES.iter().all(|(_, new)| KEYWORDS.iter().any(|k| k.name == *new)));
        assert!(
            IGNORED_NAMES.split_whitespace().all(|k| !KEYWORDS.iter().any(|u| u.name.eq_ignore_ascii_case(k))),
            "a keyword stands once"
        );
    }

    #[test]
    fn values_are_normalized() {
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
            assert_eq!(normalize(keyword, &words).expect(keyword), kept, "{keyword} {words:?}");
        }
    }

    #[test]
    fn invalid_values_name_valid_ones() {
        for (keyword, words, expected) in [
            ("Port", vec!["0"], "Port needs a port from 1 to 65535, or a service of /etc/services, not `0`"),
            ("Port", vec!["sssh"], "Port needs a port from 1 to 65535, or a service of /etc/services, not `sssh`"),
            ("Port", vec![], "Port needs a value"),
            ("User", vec![""], "User needs a value"),
            ("IdentityFile", vec!["a", "b"], "IdentityFile takes one value, `b` is extra; put quotes around a value with spaces"),
            ("BatchMode", vec!["perhaps"], "BatchMode needs yes or no, not `perhaps`"),
            ("AddressFamily", vec!["v4"], "AddressFamily needs one of any, inet, inet6, not `v4`"),
            ("ServerAliveCountMax", vec!["-1"], "ServerAliveCountMax needs a number, not `-1`"),
            ("ConnectTimeout", vec!["5y"], "ConnectTimeout needs a duration such as 10 or 1m30s, or none, not `5y`"),
            ("RekeyLimit", vec!["4"], "RekeyLimit needs an amount such as 1G, and optionally a time, not `4`"),
            ("UserKnownHostsFile", vec!["a", "none"], "UserKnownHostsFile: `none` must stand alone"),
            ("ProxyJump", vec!["b:0"], "`b:0` is not a jump host ([user@]host[:port])"),
        ] {
            assert_eq!(normalize(keyword, &words), Err(expected.to_owned()));
        }
    }
}
