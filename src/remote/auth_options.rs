//! Authentication options of ssh_config: methods, their order, key algorithms, and whether prompts are allowed.

use super::algorithms::SIGNATURE_ALGORITHMS;
use crate::ssh_config::SshOptions;
use crate::text::glob::glob_match;

/// Default of `NumberOfPasswordPrompts` (ssh_config(5)).
const DEFAULT_MAX_PROMPTS: usize = 3;
/// Default of `PreferredAuthentications` (ssh_config(5)), without methods that russh does not support.
const DEFAULT_METHOD_ORDER: &str = "publickey,keyboard-interactive,password";

/// An authentication method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AuthMethod {
    PublicKey,
    /// keyboard-interactive: the server prompts, the user answers.
    KeyboardInteractive,
    Password,
}

/// How to log in to one hop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AuthOptions {
    /// Allowed methods in the order in which they are tried.
    pub(super) methods: Vec<AuthMethod>,
    /// `BatchMode`: never prompt.
    pub(super) batch_mode: bool,
    /// Maximum number of prompts after refusals of one host.
    pub(super) max_prompts: usize,
    /// Signature algorithms that may be offered.
    pub(super) accepted_algorithms: AcceptedAlgorithms,
}

impl AuthOptions {
    pub(super) fn from_options(options: &SshOptions) -> Self {
        let off = |method: &AuthMethod| match method {
            AuthMethod::PublicKey => options.is_no("pubkeyauthentication"),
            AuthMethod::KeyboardInteractive => options.is_no("kbdinteractiveauthentication"),
            AuthMethod::Password => options.is_no("passwordauthentication"),
        };
        let order = options.first_text("preferredauthentications").unwrap_or(DEFAULT_METHOD_ORDER);
        let mut methods: Vec<AuthMethod> = Vec::new();
        for method in order.split(',').filter_map(|name| parse_method(name.trim())) {
            if !off(&method) && !methods.contains(&method) {
                methods.push(method);
            }
        }
        let accepted = options.first_text("pubkeyacceptedalgorithms");
        AuthOptions {
            methods,
            batch_mode: options.is_yes("batchmode"),
            max_prompts: options
                .positive_number("numberofpasswordprompts")
                .and_then(|n| usize::try_from(n).ok())
                .unwrap_or(DEFAULT_MAX_PROMPTS),
            accepted_algorithms: AcceptedAlgorithms::parse(accepted.unwrap_or_default()),
        }
    }
}

fn parse_method(name: &str) -> Option<AuthMethod> {
    match name {
        "publickey" => Some(AuthMethod::PublicKey),
        "keyboard-interactive" => Some(AuthMethod::KeyboardInteractive),
        "password" => Some(AuthMethod::Password),
        _ => None,
    }
}

/// `PubkeyAcceptedAlgorithms`: a list of patterns, or one that adds to the default (`+`, `^`) or removes from it (`-`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AcceptedAlgorithms {
    sign: Option<char>,
    patterns: Vec<String>,
}

impl AcceptedAlgorithms {
    fn parse(text: &str) -> Self {
        let sign = text.chars().next().filter(|c| matches!(c, '+' | '-' | '^'));
        let list = sign.map_or(text, |_| text.get(1..).unwrap_or_default());
        let patterns: Vec<String> = list.split(',').map(str::trim).filter(|p| !p.is_empty()).map(str::to_owned).collect();
        // An absent value is the default with nothing added.
        let sign = sign.or(patterns.is_empty().then_some('+'));
        AcceptedAlgorithms { sign, patterns }
    }

    /// Whether this signature algorithm, by protocol name, may be offered.
    pub(super) fn allows(&self, name: &str) -> bool {
        let named = self.patterns.iter().any(|pattern| glob_match(pattern, name));
        // In OpenSSH's default each also has a certificate form.
        let usual = || SIGNATURE_ALGORITHMS.split_whitespace().any(|a| a == name || certificate_algorithm(a) == name);
        match self.sign {
            Some('-') => usual() && !named,
            Some(_) => usual() || named,
            None => named,
        }
    }
}

/// Name of the certificate form of an algorithm.
pub(super) fn certificate_algorithm(algorithm: &str) -> String {
    format!("{}-cert-v01@openssh.com", algorithm.trim_end_matches("@openssh.com"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_auth_options(text: &str) -> AuthOptions {
        AuthOptions::from_options(&SshOptions::parse_ssh_g(text))
    }

    #[test]
    fn method_order_follows_preferred_authentications() {
        assert_eq!(parse_auth_options("").methods, [AuthMethod::PublicKey, AuthMethod::KeyboardInteractive, AuthMethod::Password]);
        assert_eq!(
            parse_auth_options("preferredauthentications gssapi-with-mic,password,publickey,password\n").methods,
            [AuthMethod::Password, AuthMethod::PublicKey]
        );
        assert_eq!(parse_auth_options("pubkeyauthentication no\nkbdinteractiveauthentication no\n").methods, [AuthMethod::Password]);
        assert_eq!(
            parse_auth_options("pubkeyauthentication host-bound\npasswordauthentication no\n").methods,
            [AuthMethod::PublicKey, AuthMethod::KeyboardInteractive]
        );
        let login = parse_auth_options("batchmode yes\nnumberofpasswordprompts 1\n");
        assert!(login.batch_mode && login.max_prompts == 1);
    }

    #[test]
    fn accepted_algorithms_support_add_and_remove() {
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
            assert_eq!(AcceptedAlgorithms::parse(text).allows(name), allowed, "{text:?} {name}");
        }
    }
}
