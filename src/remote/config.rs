//! Reads what `ssh -G` prints and finishes what it leaves undone: `%` tokens, `~`, `${…}`, lists of paths, jump hosts.
//!
//! Uses nothing. Knows no files and runs nothing: `resolve` asks ssh and hands the text over.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::settings::{Variables, tilde};

/// The key files that OpenSSH tries when none is named.
const STANDARD_KEYS: [&str; 7] = [
    "~/.ssh/id_rsa",
    "~/.ssh/id_ecdsa",
    "~/.ssh/id_ecdsa_sk",
    "~/.ssh/id_ed25519",
    "~/.ssh/id_ed25519_sk",
    "~/.ssh/id_xmss",
    "~/.ssh/id_dsa",
];

/// What `ssh -G` said about one alias: every keyword with its values, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Options(BTreeMap<String, Vec<String>>);

impl Options {
    /// Reads the output of `ssh -G`.
    pub(super) fn parse(text: &str) -> Self {
        let mut options = BTreeMap::<String, Vec<String>>::new();
        for line in text.lines() {
            let (key, value) = line.split_once(' ').unwrap_or((line, ""));
            if !key.is_empty() {
                options.entry(key.to_ascii_lowercase()).or_default().push(value.trim().to_owned());
            }
        }
        Options(options)
    }

    /// What holds without any ssh_config.
    pub(super) fn defaults() -> Self {
        let mut text = STANDARD_KEYS.map(|key| format!("identityfile {key}\n")).concat();
        text.push_str("userknownhostsfile ~/.ssh/known_hosts ~/.ssh/known_hosts2\n");
        text.push_str("globalknownhostsfile /etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2\n");
        Options::parse(&text)
    }

    /// The first value of a keyword; `none` and an empty value count as absent.
    pub(super) fn first(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.first().map(String::as_str).filter(|v| !v.is_empty() && *v != "none")
    }

    /// All values of a keyword but `none`.
    pub(super) fn all(&self, key: &str) -> impl Iterator<Item = &str> {
        self.0.get(key).into_iter().flatten().map(String::as_str).filter(|v| !v.is_empty() && *v != "none")
    }

    /// Whether a keyword says `none`.
    pub(super) fn is_none(&self, key: &str) -> bool {
        self.0.get(key).is_some_and(|values| values.first().is_some_and(|v| v == "none"))
    }

    /// Whether a keyword says yes.
    pub(super) fn yes(&self, key: &str) -> bool {
        matches!(self.first(key), Some("yes" | "true"))
    }

    /// Whether a keyword says no.
    pub(super) fn no(&self, key: &str) -> bool {
        matches!(self.first(key), Some("no" | "false"))
    }

    /// A number greater than zero.
    pub(super) fn number(&self, key: &str) -> Option<u64> {
        self.first(key)?.parse().ok().filter(|n| *n > 0)
    }

    /// Whether `identityfile` is the list that ssh prints when the user named no key.
    pub(super) fn standard_keys(&self) -> bool {
        self.all("identityfile").all(|file| STANDARD_KEYS.contains(&file))
    }

    /// Paths of a keyword that holds several on one line. ssh prints them unquoted, so a path with a blank is put together again: a new path
    /// begins with `/`, `~`, `%` or `$`.
    pub(super) fn paths(&self, key: &str) -> Vec<String> {
        let Some(line) = self.first(key) else { return Vec::new() };
        let mut paths: Vec<String> = Vec::new();
        for word in line.split(' ') {
            match paths.last_mut() {
                Some(last) if !word.starts_with(['/', '~', '%', '$']) => {
                    last.push(' ');
                    last.push_str(word);
                }
                _ => paths.push(word.to_owned()),
            }
        }
        paths.retain(|p| p != "none");
        paths
    }
}

/// What `%` tokens stand for.
#[derive(Clone)]
pub(super) struct Tokens<'a> {
    /// `%h`: the host that ssh connects to.
    pub(super) host: &'a str,
    /// `%n`: the name as it was asked for.
    pub(super) alias: &'a str,
    /// `%k`: the host key's name.
    pub(super) key_name: &'a str,
    /// `%p`.
    pub(super) port: u16,
    /// `%r`: the user on the host.
    pub(super) user: &'a str,
    /// `%j`: the jump host, or nothing.
    pub(super) jump: &'a str,
    /// `%u`: the user of the laptop.
    pub(super) local_user: &'a str,
    /// `%d` and `~`.
    pub(super) home: &'a Path,
    /// `%i`.
    pub(super) uid: u32,
    /// `${…}`.
    pub(super) variables: &'a Variables,
}

impl Tokens<'_> {
    /// Expands `~`, `%` tokens and `${…}` in a path of ssh_config; an error is a fragment that names what cannot be expanded.
    pub(super) fn path(&self, text: &str) -> Result<PathBuf, String> {
        let home = self.home.to_string_lossy().into_owned();
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find(['%', '$']) {
            out.push_str(rest.get(..at).unwrap_or_default());
            rest = rest.get(at..).unwrap_or_default();
            if let Some((name, after)) = rest.strip_prefix("${").and_then(|r| r.split_once('}')) {
                out.push_str(&(self.variables)(name).ok_or_else(|| format!("`{text}`: the variable {name} is not set"))?);
                rest = after;
                continue;
            }
            let mut chars = rest.chars();
            let sign = chars.next();
            if sign == Some('%') {
                let token = chars.next();
                out.push_str(&self.token(token, &home).ok_or_else(|| {
                    let token = token.map(String::from).unwrap_or_default();
                    format!("`{text}`: the token %{token} is not supported")
                })?);
            } else {
                out.push('$');
            }
            rest = chars.as_str();
        }
        out.push_str(rest);
        Ok(tilde(&out, self.home))
    }

    fn token(&self, token: Option<char>, home: &str) -> Option<String> {
        Some(match token? {
            '%' => "%".to_owned(),
            'h' => self.host.to_owned(),
            'n' => self.alias.to_owned(),
            'k' => self.key_name.to_owned(),
            'p' => self.port.to_string(),
            'r' => self.user.to_owned(),
            'j' => self.jump.to_owned(),
            'u' => self.local_user.to_owned(),
            'd' => home.to_owned(),
            'i' => self.uid.to_string(),
            _ => return None,
        })
    }
}

/// A jump host as it is written: `[user@]host[:port]`, `[user@][v6]:port` or `ssh://…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Jump {
    pub(super) user: Option<String>,
    pub(super) host: String,
    pub(super) port: Option<u16>,
}

impl Jump {
    /// Reads one jump host; an error is a fragment.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a jump host ([user@]host[:port])");
        let bare = text.trim();
        let bare = bare.strip_prefix("ssh://").map_or(bare, |b| b.trim_end_matches('/'));
        let (user, place) = bare.rsplit_once('@').map_or((None, bare), |(user, place)| (Some(user.to_owned()), place));
        let (host, port) = match place.strip_prefix('[').and_then(|p| p.split_once(']')) {
            Some((host, rest)) => (host, rest.strip_prefix(':')),
            None => match place.rsplit_once(':') {
                Some((host, port)) if !host.contains(':') => (host, Some(port)),
                _ => (place, None),
            },
        };
        let port = port.map(|p| p.parse::<u16>().ok().filter(|p| *p > 0).ok_or_else(wrong)).transpose()?;
        if host.is_empty() || host.starts_with('-') || user.as_deref() == Some("") {
            return Err(wrong());
        }
        Ok(Jump { user, host: host.to_owned(), port })
    }

    /// Reads the value of `ProxyJump`.
    pub(super) fn list(text: &str) -> Result<Vec<Self>, String> {
        text.split(',').map(Jump::parse).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn tokens(variables: &Variables) -> Tokens<'_> {
        Tokens {
            host: "10.0.0.1",
            alias: "g1",
            key_name: "g1key",
            port: 22,
            user: "root",
            jump: "b1",
            local_user: "li",
            home: Path::new("/home/li"),
            uid: 1000,
            variables,
        }
    }

    #[test]
    fn ssh_g_is_read_with_its_none_and_its_blanks() {
        let text = "hostname 1.2.3.4\nidentityfile ~/.ssh/id_%h\nidentityfile /tmp/with space/id\nuserknownhostsfile /root/.ssh/kh1 /tmp/a b/kh2\nproxycommand none\nidentityagent none\nconnecttimeout none\nstricthostkeychecking false\n";
        let options = Options::parse(text);
        assert_eq!(options.first("hostname"), Some("1.2.3.4"));
        assert_eq!(options.all("identityfile").collect::<Vec<_>>(), ["~/.ssh/id_%h", "/tmp/with space/id"]);
        assert_eq!(options.paths("userknownhostsfile"), ["/root/.ssh/kh1", "/tmp/a b/kh2"]);
        assert_eq!(options.first("proxycommand"), None);
        assert!(options.is_none("identityagent") && options.no("stricthostkeychecking"));
        assert_eq!(options.number("connecttimeout"), None);
        assert!(!options.standard_keys());
    }

    #[test]
    fn without_ssh_config_the_usual_files_hold() {
        let options = Options::defaults();
        assert!(options.standard_keys() && options.all("identityfile").count() == 7);
        assert_eq!(options.paths("userknownhostsfile"), ["~/.ssh/known_hosts", "~/.ssh/known_hosts2"]);
    }

    #[test]
    fn tokens_are_expanded_and_unknown_ones_named() {
        let variables: Variables = Arc::new(|name| (name == "KEYS").then(|| "/keys".to_owned()));
        let tokens = tokens(&variables);
        assert_eq!(tokens.path("~/.ssh/id_%h_%n_%k%%").as_deref(), Ok(Path::new("/home/li/.ssh/id_10.0.0.1_g1_g1key%")));
        assert_eq!(tokens.path("%d/%u-%i-%r-%p-%j").as_deref(), Ok(Path::new("/home/li/li-1000-root-22-b1")));
        assert_eq!(tokens.path("${KEYS}/id$").as_deref(), Ok(Path::new("/keys/id$")));
        assert_eq!(tokens.path("${NOPE}/id"), Err("`${NOPE}/id`: the variable NOPE is not set".to_owned()));
        assert_eq!(tokens.path("/x/%C"), Err("`/x/%C`: the token %C is not supported".to_owned()));
    }

    #[test]
    fn jump_hosts_are_read_in_every_form() {
        let jump = |user: Option<&str>, host: &str, port| Jump { user: user.map(str::to_owned), host: host.to_owned(), port };
        assert_eq!(Jump::list("u@b1:33,b2"), Ok(vec![jump(Some("u"), "b1", Some(33)), jump(None, "b2", None)]));
        assert_eq!(Jump::parse("ssh://me@b9:99/"), Ok(jump(Some("me"), "b9", Some(99))));
        assert_eq!(Jump::parse("[fd00::1]:22"), Ok(jump(None, "fd00::1", Some(22))));
        assert_eq!(Jump::parse("fd00::1"), Ok(jump(None, "fd00::1", None)));
        assert!(Jump::parse("b:0").is_err() && Jump::parse("@b").is_err() && Jump::parse("").is_err() && Jump::parse("-oX").is_err());
    }
}
