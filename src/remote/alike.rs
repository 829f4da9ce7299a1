//! Tells for which hosts ssh_config must say the same, so that ssh is asked once for all of them: a process for each of 256 hosts costs more
//! than all that is done with them.
//!
//! Uses `known_hosts` for patterns. Knows no files and runs nothing: `resolve` brings the texts. It does not say what a setting is: within
//! files without `Match`, an answer follows from which `Host` patterns match, whatever else they hold.

use super::known_hosts::glob;

/// The patterns of every `Host` line, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Patterns(Vec<String>);

impl Patterns {
    /// Reads all files that ssh has read. Nothing where an answer may depend on more than the patterns.
    pub(super) fn read(texts: &[String]) -> Option<Self> {
        let mut patterns = Vec::new();
        for line in texts.iter().flat_map(|text| text.lines()) {
            let mut words = line.split(|c: char| c.is_whitespace() || matches!(c, '=' | '"' | ',')).filter(|word| !word.is_empty());
            let Some(keyword) = words.next() else { continue };
            match keyword.to_ascii_lowercase().as_str() {
                "host" => patterns.extend(words.map(|word| word.trim_start_matches('!').to_owned())),
                "match" => return None,
                // What ssh itself may fill in from the name.
                "include" | "user" | "hostkeyalias" if line.contains('%') => return None,
                "canonicalizehostname" if words.next() != Some("no") => return None,
                _ => {}
            }
        }
        Some(Patterns(patterns))
    }

    /// Which patterns an alias matches, one letter each. Nothing for a name in which ssh may see more than a name.
    pub(super) fn of(&self, alias: &str) -> Option<String> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'_');
        let letter = |pattern: &String| if glob(pattern.as_bytes(), alias.as_bytes()) { '1' } else { '0' };
        (!alias.is_empty() && alias.bytes().all(plain)).then(|| self.0.iter().map(letter).collect())
    }
}

/// The files that `ssh -v -G` says it has read; nothing where it is not OpenSSH that speaks.
pub(super) fn files(said: &str) -> Option<Vec<&str>> {
    /// ssh cuts longer paths off.
    const LONGEST: usize = 199;
    said.lines().find(|line| line.starts_with("OpenSSH_"))?;
    let files: Vec<&str> =
        said.lines().filter_map(|line| line.strip_prefix("debug1: Reading configuration data ")).map(str::trim).collect();
    files.iter().all(|file| file.len() <= LONGEST).then_some(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Patterns> {
        Patterns::read(&[text.to_owned()])
    }

    #[test]
    fn hosts_that_match_the_same_are_alike() {
        let patterns =
            read("User li\n# Host gpu03\nHost gpu* !gpu02\n Port 1\nhost=\"login\"\n  HostName %h.example\nHost *\n").expect("read");
        assert_eq!(patterns.of("gpu01"), patterns.of("gpu03"));
        assert_ne!(patterns.of("gpu01"), patterns.of("gpu02"), "a pattern with `!`");
        assert_ne!(patterns.of("gpu01"), patterns.of("login"));
        assert_eq!(patterns.of("a"), patterns.of("b"));
        assert_eq!(patterns.of("me@gpu01"), None);
        assert_eq!(patterns.of("GPU01"), None, "ssh may fold its case");
    }

    #[test]
    fn files_that_ask_for_more_than_the_name_are_left_to_ssh() {
        for text in
            ["Match exec true\n", " match host a\n", "Include conf.d/%h\n", "User %n\n", "CanonicalizeHostname always\n", "\"Match\" all"]
        {
            assert_eq!(read(text), None, "{text}");
        }
        assert!(read("Include conf.d/*\nCanonicalizeHostname no\nIdentityFile ~/.ssh/%h\n").is_some());
    }

    #[test]
    fn ssh_says_what_it_has_read() {
        let said = "OpenSSH_9.2p1 Debian\ndebug1: Reading configuration data /a b/config\r\ndebug1: /a line 1: Applying options for *\n";
        assert_eq!(files(said), Some(vec!["/a b/config"]));
        assert_eq!(files("debug1: Reading configuration data /a\n"), None, "not OpenSSH");
        assert_eq!(files(&format!("OpenSSH_9\ndebug1: Reading configuration data /{}\n", "x".repeat(200))), None);
    }
}
