//! What ssh_config says about one host: every keyword with its values, each with the place it came from.

use std::fmt;
use std::sync::Arc;

use super::keywords::{self, KeywordValueKind, SshKeyword};

/// The key files that OpenSSH tries when none is named. The last is tried since 10.5.
const DEFAULT_KEY_FILES: [&str; 8] = [
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
pub(crate) enum SettingOrigin {
    Inventory,
    /// A line of a file; the file as people write it, with `~`.
    Line(Arc<str>, usize),
    Default,
    /// The ssh program, which does not print the source of a value.
    SshG,
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingOrigin::Inventory => f.write_str("inventory"),
            SettingOrigin::Line(file, line) => write!(f, "{file}:{line}"),
            SettingOrigin::Default => f.write_str("default"),
            SettingOrigin::SshG => f.write_str("ssh -G"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SshOptionValue {
    pub(crate) text: Arc<str>,
    pub(crate) origin: SettingOrigin,
}

impl SshOptionValue {
    pub(crate) fn new(text: &str, origin: &SettingOrigin) -> Self {
        SshOptionValue { text: text.into(), origin: origin.clone() }
    }

    fn is_none(&self) -> bool {
        self.text.eq_ignore_ascii_case("none")
    }
}

/// Every keyword that is set for one host, in the order in which it was met.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SshOptions(Vec<(&'static SshKeyword, Vec<SshOptionValue>)>);

impl SshOptions {
    /// Reads the output of `ssh -G`.
    pub(crate) fn parse_ssh_g(text: &str) -> Self {
        let mut options = SshOptions::default();
        for line in text.lines() {
            let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
            let Some(keyword) = keywords::find_keyword(name).filter(|k| k.value_kind != KeywordValueKind::Ignored) else { continue };
            let words = if keyword.value_kind == KeywordValueKind::Words { split_paths(rest) } else { vec![rest.to_owned()] };
            // What ssh has judged is kept as it is where it has another form than we know.
            let values = keyword.normalize_values(words.clone(), rest).unwrap_or(words);
            if !values.is_empty() {
                options.values_mut(keyword).extend(values.iter().map(|v| SshOptionValue::new(v, &SettingOrigin::SshG)));
            }
        }
        options
    }

    /// Sets what stands over every file. A keyword that is not one of ours is left out.
    pub(crate) fn set(&mut self, keyword: &str, text: &str, origin: &SettingOrigin) {
        if let Some(keyword) = keywords::find_keyword(keyword) {
            *self.values_mut(keyword) = vec![SshOptionValue::new(text, origin)];
        }
    }

    /// Adds OpenSSH's defaults.
    pub(crate) fn fill_defaults(&mut self) {
        let defaults: [(&str, &[&str]); 3] = [
            ("IdentityFile", &DEFAULT_KEY_FILES),
            ("UserKnownHostsFile", &["~/.ssh/known_hosts", "~/.ssh/known_hosts2"]),
            ("GlobalKnownHostsFile", &["/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"]),
        ];
        for (name, values) in defaults {
            if let Some(keyword) = keywords::find_keyword(name).filter(|_| !self.is_set(name)) {
                *self.values_mut(keyword) = values.iter().map(|v| SshOptionValue::new(v, &SettingOrigin::Default)).collect();
            }
        }
    }

    /// The values of a keyword, to be added to.
    pub(crate) fn values_mut(&mut self, keyword: &'static SshKeyword) -> &mut Vec<SshOptionValue> {
        let at = self.0.iter().position(|(k, _)| std::ptr::eq(*k, keyword)).unwrap_or_else(|| {
            self.0.push((keyword, Vec::new()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }

    /// Whether a keyword is set, be it to `none`.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        !self.all_values(name).is_empty()
    }

    /// The values of a keyword, `none` too.
    pub(crate) fn all_values(&self, name: &str) -> &[SshOptionValue] {
        self.0.iter().find(|(k, _)| k.name.eq_ignore_ascii_case(name)).map_or(&[], |(_, values)| values)
    }

    /// Every keyword with its values, `none` too, in the order in which they were met.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, &[SshOptionValue])> {
        self.0.iter().map(|(keyword, values)| (keyword.name, values.as_slice()))
    }

    /// The values of a keyword but `none`, with their places.
    pub(crate) fn values(&self, key: &str) -> impl Iterator<Item = &SshOptionValue> {
        self.all_values(key).iter().filter(|v| !v.text.is_empty() && !v.is_none())
    }

    /// The first value of a keyword; `none` counts as absent.
    pub(crate) fn first_value(&self, key: &str) -> Option<&SshOptionValue> {
        self.all_values(key).first().filter(|v| !v.text.is_empty() && !v.is_none())
    }

    /// The text of [`SshOptions::first_value`].
    pub(crate) fn first_text(&self, key: &str) -> Option<&str> {
        self.first_value(key).map(|v| &*v.text)
    }

    /// Whether a keyword says `none`.
    pub(crate) fn is_set_to_none(&self, key: &str) -> bool {
        self.all_values(key).first().is_some_and(SshOptionValue::is_none)
    }

    /// Whether a keyword says yes.
    pub(crate) fn is_yes(&self, key: &str) -> bool {
        self.first_text(key) == Some("yes")
    }

    /// Whether a keyword says no.
    pub(crate) fn is_no(&self, key: &str) -> bool {
        self.first_text(key) == Some("no")
    }

    /// A number greater than zero.
    pub(crate) fn positive_number(&self, key: &str) -> Option<u64> {
        self.first_text(key)?.parse().ok().filter(|n| *n > 0)
    }

    /// Whether the key files are those that OpenSSH tries unasked.
    pub(crate) fn has_default_keys(&self) -> bool {
        let standard = |v: &SshOptionValue| match v.origin {
            SettingOrigin::Default => true,
            SettingOrigin::SshG => DEFAULT_KEY_FILES.contains(&&*v.text),
            SettingOrigin::Inventory | SettingOrigin::Line(..) => false,
        };
        self.values("IdentityFile").all(standard)
    }
}

/// The paths of a line of `ssh -G`, which prints them unquoted: a path with a blank is put together again, as a new path begins with `/`, `~`,
/// `%` or `$`.
fn split_paths(line: &str) -> Vec<String> {
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
    fn ssh_g_output_parses_none_and_blanks() {
        let text = "hostname 1.2.3.4\nidentityfile ~/.ssh/id_%h\nidentityfile /tmp/with space/id\nuserknownhostsfile /root/.ssh/kh1 /tmp/a b/kh2\n\
                    proxycommand none\nidentityagent none\nconnecttimeout none\nstricthostkeychecking false\nsendenv LANG\n";
        let options = SshOptions::parse_ssh_g(text);
        assert_eq!(options.first_text("hostname"), Some("1.2.3.4"));
        let all = |key| options.values(key).map(|v| v.text.to_string()).collect::<Vec<_>>();
        assert_eq!(all("identityfile"), ["~/.ssh/id_%h", "/tmp/with space/id"]);
        assert_eq!(all("userknownhostsfile"), ["/root/.ssh/kh1", "/tmp/a b/kh2"]);
        assert_eq!(options.first_text("proxycommand"), None);
        assert!(options.is_set_to_none("identityagent") && options.is_no("stricthostkeychecking"));
        assert_eq!(options.positive_number("connecttimeout"), None);
        assert!(!options.has_default_keys() && !options.is_set("sendenv"));
        assert!(SshOptions::parse_ssh_g("identityfile ~/.ssh/id_rsa\nidentityfile ~/.ssh/id_ed25519\n").has_default_keys());
    }

    #[test]
    fn default_files_apply_without_ssh_config() {
        let mut options = SshOptions::default();
        options.set("Port", "33", &SettingOrigin::Inventory);
        options.fill_defaults();
        assert!(options.has_default_keys());
        assert_eq!(
            options.values("userknownhostsfile").map(|v| &*v.text).collect::<Vec<_>>(),
            ["~/.ssh/known_hosts", "~/.ssh/known_hosts2"]
        );
        assert_eq!(options.first_value("port").map(|v| v.origin.to_string()).as_deref(), Some("inventory"));
    }
}
