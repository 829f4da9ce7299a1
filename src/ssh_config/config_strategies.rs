//! Generated ssh_config files: settings, blocks, criteria, mistakes.

use proptest::prelude::*;

pub(super) const ALIASES: [&str; 6] = ["gpu01", "gpu02", "login.corp", "10.0.0.1", "FD00::0001", "Gpu01"];

fn patterns() -> impl Strategy<Value = &'static str> {
    prop::sample::select(
        &["gpu01", "gpu*", "gpu0?", "!gpu02", "*.corp", "!*.corp", "10.*", "*", "login", "fd00::*", "GPU01", "g?u0[12]", "*pu**1"][..],
    )
}

/// Keywords with values, good and bad.
const KEYWORDS: &[(&str, &[&str])] = &[
    ("HostName", &["10.0.0.%h", "%h.corp", "GPU01.Corp", "fd00::0:1", "127.0.0.1", "a%%b", "x%y"]),
    ("User", &["root", "li", "eve", "a b", "left over"]),
    ("Port", &["22", "2222", "65535", "0", "65536", "x"]),
    ("IdentityFile", &["~/.ssh/id_%h", "/keys/a b", "none", "%d/k", "${ORCH_TEST_DIR}/id", "~/.ssh/id_rsa", "/keys/id"]),
    ("CertificateFile", &["/keys/a-cert.pub", "~/c d.pub", "/keys/%r"]),
    ("IdentitiesOnly", &["yes", "no", "TRUE", "maybe"]),
    ("IdentityAgent", &["none", "SSH_AUTH_SOCK", "~/agent-%n", "/run/%u/%i-%p", "${ORCH_TEST_DIR}/sock", "%d/%r@%h"]),
    ("UserKnownHostsFile", &["~/.ssh/kh", "/a/kh ~/b", "none", "~/%C", "~/kh_%k %d/%L", "~/%l.%n"]),
    ("GlobalKnownHostsFile", &["/etc/kh", "none", "/a /b /c"]),
    ("StrictHostKeyChecking", &["yes", "no", "ask", "accept-new", "off", "never"]),
    ("HostKeyAlias", &["key1", "KEY2"]),
    ("HashKnownHosts", &["yes", "no"]),
    ("CheckHostIP", &["yes", "no"]),
    ("RevokedHostKeys", &["/etc/revoked", "none"]),
    ("KnownHostsCommand", &["none", "/bin/keys %H  %h", "none # no"]),
    ("ProxyJump", &["bastion", "li@b1:2222,b2", "ssh://li@b3:99", "[fd00::9]:22", "b:0", "b # the door", "a,b,c"]),
    ("ProxyCommand", &["nc %h %p", "none", "ssh -W '%h:%p'  b # x", "= nc \"%h\" %p"]),
    ("ProxyUseFdpass", &["yes", "no"]),
    ("AddressFamily", &["any", "inet", "INET6", "ipv4"]),
    ("BindAddress", &["10.0.0.9"]),
    ("BindInterface", &["bond0"]),
    ("ConnectTimeout", &["5", "1m30s", "none", "2x", "1h"]),
    ("ConnectionAttempts", &["1", "3", "-2"]),
    ("ServerAliveInterval", &["15", "1m", "0"]),
    ("ServerAliveCountMax", &["2", "x"]),
    ("TCPKeepAlive", &["yes", "no"]),
    ("KeepAlive", &["yes", "no"]),
    ("KexAlgorithms", &["curve25519-sha256", "+diffie-hellman-group1-sha1", "-curve25519-sha256", "^ecdh-sha2-nistp256"]),
    ("Ciphers", &["aes128-ctr,aes256-ctr", "+3des-cbc", "-chacha20-poly1305@openssh.com", "^aes256-ctr"]),
    ("MACs", &["hmac-sha2-256", "-hmac-sha1", "^hmac-sha2-512"]),
    ("HostKeyAlgorithms", &["ssh-ed25519", "+ssh-rsa", "^ssh-ed25519"]),
    ("PubkeyAcceptedAlgorithms", &["ssh-ed25519,rsa-sha2-512", "+ssh-rsa"]),
    ("PubkeyAcceptedKeyTypes", &["ssh-ed25519"]),
    ("CASignatureAlgorithms", &["ssh-ed25519", "^ssh-ed25519"]),
    ("PubkeyAuthentication", &["yes", "no", "unbound", "host-bound", "sometimes"]),
    ("PasswordAuthentication", &["yes", "no"]),
    ("KbdInteractiveAuthentication", &["yes", "no"]),
    ("ChallengeResponseAuthentication", &["yes", "no"]),
    ("PreferredAuthentications", &["publickey", "publickey,password"]),
    ("NumberOfPasswordPrompts", &["1", "3", "many"]),
    ("BatchMode", &["yes", "no"]),
    ("SecurityKeyProvider", &["internal", "none", "/lib/sk.so"]),
    ("RequiredRSASize", &["1024", "2048"]),
    ("RekeyLimit", &["1G 1h", "default 5m", "512M 30", "8 1h", "1K 1h"]),
    ("Compression", &["yes", "no"]),
    ("NoHostAuthenticationForLocalhost", &["yes", "no"]),
    ("VerifyHostKeyDNS", &["yes", "no", "ask"]),
    ("IgnoreUnknown", &["Use*,nons*", "UseKeychain"]),
    ("UseKeychain", &["yes"]),
    ("SendEnv", &["LANG LC_*", "-X"]),
    ("SetEnv", &["A=b C=d"]),
    ("ControlPath", &["~/.ssh/%C"]),
    ("GSSAPIAuthentication", &["yes"]),
    ("Protocol", &["2"]),
    ("RSAAuthentication", &["yes"]),
    ("AddKeysToAgent", &["confirm 5m", "yes"]),
    ("ForwardAgent", &["yes"]),
    ("LocalForward", &["8080 localhost:80"]),
    ("AddressFamly", &["any"]),
];

/// Values of a keyword, good ones and now and then a bad one.
fn keyword_and_value() -> impl Strategy<Value = (&'static str, &'static str)> {
    let pick = |(keyword, values): (&'static str, &'static [&'static str])| {
        let good: Vec<&str> = values.to_vec();
        prop::sample::select(good).prop_map(move |v| (keyword, v))
    };
    prop::sample::select(KEYWORDS.to_vec()).prop_flat_map(pick)
}

/// One line as people write it: case, indent, sign, quotes, comment.
fn setting_line() -> impl Strategy<Value = String> {
    let separator = prop::sample::select(&[" ", "  ", "\t", "=", " = ", "= ", " ="][..]);
    let indent = prop::sample::select(&["", "  ", "\t"][..]);
    let end = prop::sample::select(&["", "", " ", "\t", " # why", "\r"][..]);
    (keyword_and_value(), separator, indent, end, 0..3_u8, 0..4_u8).prop_map(|((keyword, value), separator, indent, end, case, quote)| {
        let keyword = match case {
            0 => keyword.to_ascii_lowercase(),
            1 => keyword.to_ascii_uppercase(),
            _ => keyword.to_owned(),
        };
        // What holds for the rest of a line holds for its comments; a list of words is not one quoted word.
        let command = ["PROXYCOMMAND", "PROXYJUMP", "KNOWNHOSTSCOMMAND"].contains(&keyword.to_ascii_uppercase().as_str());
        let one = ["a b", "/keys/a b", "~/c d.pub"].contains(&value);
        let value = match quote {
            _ if command => value.to_owned(),
            0 if one || !value.contains(' ') => format!("\"{value}\""),
            1 if one || !value.contains(' ') => format!("'{value}'"),
            2 if one => value.replace(' ', "\\ "),
            _ if one => format!("\"{value}\""),
            _ => value.to_owned(),
        };
        let end = if command && end.contains('#') { "" } else { end };
        format!("{indent}{keyword}{separator}{value}{end}")
    })
}

fn match_criteria() -> impl Strategy<Value = String> {
    let list = || prop::collection::vec(patterns(), 1..3).prop_map(|p| p.join(","));
    let users = prop::sample::select(&["root", "li,eve", "!root", "*", "r*,!root"][..]);
    let criterion = prop_oneof![
        list().prop_map(|l| format!("host {l}")),
        list().prop_map(|l| format!("!Host \"{l}\"")),
        list().prop_map(|l| format!("originalhost={l}")),
        users.clone().prop_map(|u| format!("user {u}")),
        users.prop_map(|u| format!("LocalUser {u}")),
        Just("final".to_owned()),
        Just("!canonical".to_owned()),
        Just("nonsense x".to_owned()),
    ];
    prop_oneof![
        1 => Just("all".to_owned()),
        1 => Just("!all".to_owned()),
        1 => Just("final all".to_owned()),
        8 => prop::collection::vec(criterion, 1..3).prop_map(|c| c.join(" ")),
    ]
}

fn config_line() -> impl Strategy<Value = String> {
    prop_oneof![
        12 => setting_line(),
        3 => prop::collection::vec(patterns(), 1..4).prop_map(|p| format!("Host {}", p.join(" "))),
        1 => prop::collection::vec(patterns(), 1..3).prop_map(|p| format!("host=\"{}\" # c", p.join("\" \""))),
        2 => match_criteria().prop_map(|c| format!("Match {c}")),
        1 => prop::sample::select(&["Include @DIR@/a.conf", "Include=@DIR@/[ab].conf", "Include @DIR@/none @DIR@/b.*", "include \"@DIR@/*.conf\""][..])
            .prop_map(str::to_owned),
        1 => prop::sample::select(&["", "# Port 9", "   ", "\t# x\r"][..]).prop_map(str::to_owned),
    ]
}

/// A file; without `mistakes` it has none of those with which most generated files would end in one and the same way.
pub(super) fn config_text(lines: usize, mistakes: bool) -> impl Strategy<Value = String> {
    prop::collection::vec(config_line(), 0..lines).prop_map(move |lines| {
        let fine = |line: &&String| mistakes || !INVALID_SNIPPETS.iter().any(|m| line.to_ascii_lowercase().contains(m));
        lines.iter().filter(fine).map(|l| format!("{l}\n")).collect()
    })
}

/// An included file; it includes none, as that would lead in circles, which have tests of their own.
pub(super) fn included_text(mistakes: bool) -> impl Strategy<Value = String> {
    config_text(6, mistakes).prop_map(|text| text.lines().filter(|l| !l.contains("nclude")).map(|l| format!("{l}\n")).collect())
}

/// What makes a line of the generator a wrong one, in lower case.
const INVALID_SNIPPETS: [&str; 21] = [
    "left over",
    "x%y",
    "65536",
    "maybe",
    "never",
    "ipv4",
    "2x",
    "-2",
    "sometimes",
    "many",
    "nonsense",
    "famly",
    "b:0",
    "usekeychain",
    "countmax x",
    "countmax=x",
    "rekeylimit 8",
    "rekeylimit=8",
    "usekeychain\"",
    "port x",
    "port 0",
];
