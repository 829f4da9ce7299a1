//! What ssh_config says about proving who we are: in which ways, in which order, with which key algorithms, and whether a person may be asked.
//!
//! Uses `ssh_config` and `known_hosts` (its patterns). Only computes.

use super::known_hosts::glob;
use super::ssh_config::Options;

/// How often a person is asked for a password where `NumberOfPasswordPrompts` says nothing (ssh_config(5)).
const PROMPTS: usize = 3;
/// The order where `PreferredAuthentications` says nothing (ssh_config(5)), without what russh cannot do.
const ORDER: &str = "publickey,keyboard-interactive,password";
/// What OpenSSH 10 offers where `PubkeyAcceptedAlgorithms` says nothing; each has a `-cert-v01@openssh.com` form as well.
const ALGORITHMS: [&str; 8] = [
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "rsa-sha2-512",
    "rsa-sha2-256",
];

/// A way to prove who we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    PublicKey,
    /// keyboard-interactive: the server asks, a person answers.
    Questions,
    Password,
}

/// How one hop is logged in to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Login {
    /// The ways that may be used, in the order in which they are tried.
    pub(super) methods: Vec<Method>,
    /// `BatchMode`: nobody is asked anything.
    pub(super) batch: bool,
    /// How often one host's refusal leads to another question.
    pub(super) prompts: usize,
    /// Which signatures may be offered.
    pub(super) accepted: Accepted,
}

impl Login {
    pub(super) fn read(options: &Options) -> Self {
        let off = |method: &Method| match method {
            Method::PublicKey => options.no("pubkeyauthentication"),
            Method::Questions => options.no("kbdinteractiveauthentication"),
            Method::Password => options.no("passwordauthentication"),
        };
        let order = options.first("preferredauthentications").unwrap_or(ORDER);
        let mut methods: Vec<Method> = Vec::new();
        for method in order.split(',').filter_map(|name| method(name.trim())) {
            if !off(&method) && !methods.contains(&method) {
                methods.push(method);
            }
        }
        let accepted = options.first("pubkeyacceptedalgorithms");
        Login {
            methods,
            batch: options.yes("batchmode"),
            prompts: options.number("numberofpasswordprompts").and_then(|n| usize::try_from(n).ok()).unwrap_or(PROMPTS),
            accepted: Accepted::parse(accepted.unwrap_or_default()),
        }
    }
}

fn method(name: &str) -> Option<Method> {
    match name {
        "publickey" => Some(Method::PublicKey),
        "keyboard-interactive" => Some(Method::Questions),
        "password" => Some(Method::Password),
        _ => None,
    }
}

/// `PubkeyAcceptedAlgorithms`: a list of patterns, or one that adds to the default (`+`, `^`) or takes away from it (`-`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Accepted {
    sign: Option<char>,
    patterns: Vec<String>,
}

impl Accepted {
    fn parse(text: &str) -> Self {
        let sign = text.chars().next().filter(|c| matches!(c, '+' | '-' | '^'));
        let list = sign.map_or(text, |_| text.get(1..).unwrap_or_default());
        let patterns: Vec<String> = list.split(',').map(str::trim).filter(|p| !p.is_empty()).map(str::to_owned).collect();
        // Nothing said is the default with nothing added.
        let sign = sign.or(patterns.is_empty().then_some('+'));
        Accepted { sign, patterns }
    }

    /// Whether a signature with this algorithm, by its name in the protocol, may be offered.
    pub(super) fn allows(&self, name: &str) -> bool {
        let named = self.patterns.iter().any(|pattern| glob(pattern.as_bytes(), name.as_bytes()));
        let usual = || ALGORITHMS.iter().any(|a| *a == name || certificate(a) == name);
        match self.sign {
            Some('-') => usual() && !named,
            Some(_) => usual() || named,
            None => named,
        }
    }
}

/// The name of the certificate form of an algorithm.
pub(super) fn certificate(algorithm: &str) -> String {
    format!("{}-cert-v01@openssh.com", algorithm.trim_end_matches("@openssh.com"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(text: &str) -> Login {
        Login::read(&Options::parse(text))
    }

    #[test]
    fn the_order_is_opensshs_unless_another_is_wanted() {
        assert_eq!(login("").methods, [Method::PublicKey, Method::Questions, Method::Password]);
        assert_eq!(
            login("preferredauthentications gssapi-with-mic,password,publickey,password\n").methods,
            [Method::Password, Method::PublicKey]
        );
        assert_eq!(login("pubkeyauthentication no\nkbdinteractiveauthentication no\n").methods, [Method::Password]);
        assert_eq!(login("pubkeyauthentication host-bound\npasswordauthentication no\n").methods, [Method::PublicKey, Method::Questions]);
        let login = login("batchmode yes\nnumberofpasswordprompts 1\n");
        assert!(login.batch && login.prompts == 1);
    }

    #[test]
    fn key_algorithms_are_listed_added_and_taken_away() {
        for (text, name, allowed) in [
            ("", "ssh-ed25519", true),
            ("", "rsa-sha2-512-cert-v01@openssh.com", true),
            ("", "sk-ssh-ed25519-cert-v01@openssh.com", true),
            ("", "ssh-rsa", false),
            ("+ssh-rsa", "ssh-rsa", true),
            ("+ssh-rsa", "ssh-ed25519", true),
            ("^ssh-rsa", "rsa-sha2-256", true),
            ("-rsa-*,ecdsa-*", "rsa-sha2-512", false),
            ("-rsa-*,ecdsa-*", "rsa-sha2-512-cert-v01@openssh.com", false),
            ("-rsa-*,ecdsa-*", "ssh-ed25519", true),
            ("-rsa-*,ecdsa-*", "sk-ecdsa-sha2-nistp256@openssh.com", true),
            ("ssh-ed25519,rsa-sha2-*", "rsa-sha2-256", true),
            ("ssh-ed25519", "ecdsa-sha2-nistp256", false),
        ] {
            assert_eq!(Accepted::parse(text).allows(name), allowed, "{text:?} {name}");
        }
    }
}
