//! What ssh_config says about one host: every keyword with its values, each with the place it came from.
//!
//! Uses `keywords`. Knows no files.

use std::fmt;
use std::sync::Arc;

use super::keywords::{self, Keyword, Kind};

/// The key files that OpenSSH tries when none is named. The last is tried since 10.5.
const STANDARD_KEYS: [&str; 8] = [
    "~/.ssh/id_rsa",
    "~/.ssh/id_ecdsa",
    "~/.ssh/id_ecdsa_sk",
    "~/.ssh/id_ed25519",
    "~/.ssh/id_ed25519_sk",
    "~/.ssh/id_xmss",
    "~/.ssh/id_dsa",
    "~/.ssh/id_mldsa44_ed25519",
];

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::remote) enum Origin {
    /// The inventory.
    Inventory,
    /// A line of a file; the file as people write it, with `~`.
    Line(Arc<str>, usize),
    /// Nobody named it.
    Default,
    /// The ssh program, which does not say where it found it.
    Ssh,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Inventory => f.write_str("inventory"),
            Origin::Line(file, line) => write!(f, "{file}:{line}"),
            Origin::Default => f.write_str("default"),
            Origin::Ssh => f.write_str("ssh -G"),
        }
    }
}

/// One value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::remote) struct Value {
    pub(in crate::remote) text: Arc<str>,
    pub(in crate::remote) origin: Origin,
}

impl Value {
    pub(in crate::remote) fn new(text: &str, origin: &Origin) -> Self {
        Value { text: text.into(), origin: origin.clone() }
    }

    fn is_none(&self) -> bool {
        self.text.eq_ignore_ascii_case("none")
    }
}

/// Every keyword that is set for one host, in the order in which it was met.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::remote) struct Options(Vec<(&'static Keyword, Vec<Value>)>);

impl Options {
    /// Reads the output of `ssh -G`.
    pub(in crate::remote) fn parse(text: &str) -> Self {
        let mut options = Options::default();
        for line in text.lines() {
            let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
            let Some(keyword) = keywords::lookup(name).filter(|k| k.kind != Kind::Ignored) else { continue };
            let words = if keyword.kind == Kind::Words { paths(rest) } else { vec![rest.to_owned()] };
            // What ssh has judged is kept as it is where it has another form than we know.
            let values = keyword.values(words.clone(), rest).unwrap_or(words);
            if !values.is_empty() {
                options.entry(keyword).extend(values.iter().map(|v| Value::new(v, &Origin::Ssh)));
            }
        }
        options
    }

    /// Sets what stands over every file. A keyword that is not one of ours is left out.
    pub(in crate::remote) fn preset(&mut self, keyword: &str, text: &str, origin: &Origin) {
        if let Some(keyword) = keywords::lookup(keyword) {
            *self.entry(keyword) = vec![Value::new(text, origin)];
        }
    }

    /// Adds what OpenSSH takes where nobody says anything.
    pub(super) fn fill(&mut self) {
        let fill = |keyword: &str, values: &[&str]| {
            if let Some(keyword) = keywords::lookup(keyword).filter(|k| !self.has(k)) {
                *self.entry(keyword) = values.iter().map(|v| Value::new(v, &Origin::Default)).collect();
            }
        };
        let mut fill = fill;
        fill("IdentityFile", &STANDARD_KEYS);
        fill("UserKnownHostsFile", &["~/.ssh/known_hosts", "~/.ssh/known_hosts2"]);
        fill("GlobalKnownHostsFile", &["/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"]);
    }

    /// The values of a keyword, to be added to.
    pub(super) fn entry(&mut self, keyword: &'static Keyword) -> &mut Vec<Value> {
        let at = self.0.iter().position(|(k, _)| std::ptr::eq(*k, keyword)).unwrap_or_else(|| {
            self.0.push((keyword, Vec::new()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }

    /// The values of a keyword, `none` too.
    pub(super) fn values_of(&self, keyword: &'static Keyword) -> &[Value] {
        self.0.iter().find(|(k, _)| std::ptr::eq(*k, keyword)).map_or(&[], |(_, values)| values)
    }

    /// Whether a keyword is set, be it to `none`.
    pub(super) fn has(&self, keyword: &'static Keyword) -> bool {
        self.0.iter().any(|(k, _)| std::ptr::eq(*k, keyword))
    }

    /// Whether a keyword of this name is set, be it to `none`.
    pub(in crate::remote) fn named(&self, name: &str) -> bool {
        !self.raw(name).is_empty()
    }

    fn raw(&self, name: &str) -> &[Value] {
        self.0.iter().find(|(k, _)| k.name.eq_ignore_ascii_case(name)).map_or(&[], |(_, values)| values)
    }

    /// Every keyword with its values, `none` too, in the order in which they were met.
    pub(in crate::remote) fn iter(&self) -> impl Iterator<Item = (&'static str, &[Value])> {
        self.0.iter().map(|(keyword, values)| (keyword.name, values.as_slice()))
    }

    /// The values of a keyword but `none`, with their places.
    pub(in crate::remote) fn values(&self, key: &str) -> impl Iterator<Item = &Value> {
        self.raw(key).iter().filter(|v| !v.text.is_empty() && !v.is_none())
    }

    /// The first value of a keyword; `none` counts as absent.
    pub(in crate::remote) fn value(&self, key: &str) -> Option<&Value> {
        self.raw(key).first().filter(|v| !v.text.is_empty() && !v.is_none())
    }

    /// The text of [`Options::value`].
    pub(in crate::remote) fn first(&self, key: &str) -> Option<&str> {
        self.value(key).map(|v| &*v.text)
    }

    /// Whether a keyword says `none`.
    pub(in crate::remote) fn is_none(&self, key: &str) -> bool {
        self.raw(key).first().is_some_and(Value::is_none)
    }

    /// Whether a keyword says yes.
    pub(in crate::remote) fn yes(&self, key: &str) -> bool {
        self.first(key) == Some("yes")
    }

    /// Whether a keyword says no.
    pub(in crate::remote) fn no(&self, key: &str) -> bool {
        self.first(key) == Some("no")
    }

    /// A number greater than zero.
    pub(in crate::remote) fn number(&self, key: &str) -> Option<u64> {
        self.first(key)?.parse().ok().filter(|n| *n > 0)
    }

    /// Whether the key files are those that OpenSSH tries unasked.
    pub(in crate::remote) fn standard_keys(&self) -> bool {
        let standard = |v: &Value| match v.origin {
            Origin::Default => true,
            Origin::Ssh => STANDARD_KEYS.contains(&&*v.text),
            Origin::Inventory | Origin::Line(..) => false,
        };
        self.values("IdentityFile").all(standard)
    }
}

/// The paths of a line of `ssh -G`, which prints them unquoted: a path with a blank is put together again, as a new path begins with `/`, `~`,
/// `%` or `$`.
fn paths(line: &str) -> Vec<String> {
    let mut paths: Vec<String> = Vec::new();
    for word in line.split(' ').filter(|w| !w.is_empty()) {
        match paths.last_mut() {
            Some(last) if !word.starts_with(['/', '~', '%', '$']) => {
                last.push(' ');
                last.push_str(word);
            }
            _ => paths.push(word.to_owned()),
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ssh_g_is_read_with_its_none_and_its_blanks() {
        let text = "hostname 1.2.3.4\nidentityfile ~/.ssh/id_%h\nidentityfile /tmp/with space/id\nuserknownhostsfile /root/.ssh/kh1 /tmp/a b/kh2\n\
                    proxycommand none\nidentityagent none\nconnecttimeout none\nstricthostkeychecking false\nsendenv LANG\n";
        let options = Options::parse(text);
        assert_eq!(options.first("hostname"), Some("1.2.3.4"));
        let all = |key| options.values(key).map(|v| v.text.to_string()).collect::<Vec<_>>();
        assert_eq!(all("identityfile"), ["~/.ssh/id_%h", "/tmp/with space/id"]);
        assert_eq!(all("userknownhostsfile"), ["/root/.ssh/kh1", "/tmp/a b/kh2"]);
        assert_eq!(options.first("proxycommand"), None);
        assert!(options.is_none("identityagent") && options.no("stricthostkeychecking"));
        assert_eq!(options.number("connecttimeout"), None);
        assert!(!options.standard_keys() && !options.named("sendenv"));
        assert!(Options::parse("identityfile ~/.ssh/id_rsa\nidentityfile ~/.ssh/id_ed25519\n").standard_keys());
    }

    #[test]
    fn without_ssh_config_the_usual_files_hold() {
        let mut options = Options::default();
        options.preset("Port", "33", &Origin::Inventory);
        options.fill();
        assert!(options.standard_keys());
        assert_eq!(
            options.values("userknownhostsfile").map(|v| &*v.text).collect::<Vec<_>>(),
            ["~/.ssh/known_hosts", "~/.ssh/known_hosts2"]
        );
        assert_eq!(options.value("port").map(|v| v.origin.to_string()).as_deref(), Some("inventory"));
    }
}
