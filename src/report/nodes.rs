//! The hosts of a run in the order of their node ranks, as a log folder keeps them: log files are named by these numbers, whatever inventory a
//! later command reads.
//!
//! Uses `files`. The names may come from a host: they are compared and never become part of a path.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use super::files::{lock, private, read_bounded, sync_dir};

/// The file in the log folder.
const LIST: &str = ".nodes";
/// The longest list that is read or written.
const MOST: usize = 1 << 16;
/// The most bytes of the file.
const BYTES: u64 = 16 << 20;

/// The names, the host of node rank 0 first.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Nodes {
    names: Vec<String>,
    /// Whether the folder has the list.
    kept: bool,
}

impl Nodes {
    /// The list of the folder; empty where it has none.
    pub(super) fn read(dir: &Path) -> io::Result<Nodes> {
        let Some(text) = read_bounded(&dir.join(LIST), BYTES)? else { return Ok(Nodes::default()) };
        Ok(Nodes { names: serde_json::from_slice(&text)?, kept: true })
    }

    /// The names, the host of node rank 0 first.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether the folder has the list.
    pub(super) fn kept(&self) -> bool {
        self.kept
    }

    /// Takes these names where neither the folder nor an earlier call has named any.
    pub(super) fn suppose(&mut self, names: &[String]) {
        if !self.kept && self.names.is_empty() {
            let mut seen = std::collections::HashSet::new();
            self.names = names.iter().filter(|name| seen.insert(name.as_str())).take(MOST).cloned().collect();
        }
    }

    /// The number of a host that the list has.
    pub(super) fn find(&self, host: &str) -> Option<u32> {
        self.names.iter().position(|name| name == host).and_then(|at| u32::try_from(at).ok())
    }

    /// Writes the list if the folder has none; another process may have written its own meanwhile, which then counts.
    pub(super) fn keep(&mut self, dir: &Path) -> io::Result<()> {
        if self.kept {
            return Ok(());
        }
        let _held = lock(dir)?;
        let there = Nodes::read(dir)?;
        if there.kept {
            *self = there;
            return Ok(());
        }
        self.write(dir)
    }

    /// The number of a host; one that the list does not have gets the next free number.
    pub(super) fn claim(&mut self, dir: &Path, host: &str) -> io::Result<u32> {
        if let Some(number) = self.find(host).filter(|_| self.kept) {
            return Ok(number);
        }
        let _held = lock(dir)?;
        let there = Nodes::read(dir)?;
        if there.kept {
            *self = there;
        }
        if let Some(number) = self.find(host) {
            self.write(dir)?;
            return Ok(number);
        }
        let number = u32::try_from(self.names.len()).ok().filter(|_| self.names.len() < MOST);
        let number = number.ok_or_else(|| io::Error::other(format!("a run has at most {MOST} hosts")))?;
        self.names.push(host.to_owned());
        self.write(dir).inspect_err(|_| {
            self.names.pop();
        })?;
        Ok(number)
    }

    /// Whole or not at all, also after a power cut: a number that is forgotten would be given to another host.
    fn write(&mut self, dir: &Path) -> io::Result<()> {
        let draft = dir.join(format!("{LIST}.new"));
        let mut file = private(OpenOptions::new().write(true).create(true).truncate(true)).open(&draft)?;
        serde_json::to_writer(&mut file, &self.names)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        std::fs::rename(&draft, dir.join(LIST))?;
        sync_dir(dir)?;
        self.kept = true;
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests damage the file")]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_first_list_stays_and_strangers_are_appended() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut nodes = Nodes::read(dir.path()).expect("none is no error");
        nodes.suppose(&names("a b a"));
        nodes.keep(dir.path()).expect("written");
        let mut other = Nodes::default();
        other.suppose(&names("b a"));
        other.keep(dir.path()).expect("there is one");
        assert_eq!((other.find("a"), other.find("b"), other.find("c")), (Some(0), Some(1), None));
        assert_eq!(other.claim(dir.path(), "c").expect("appended"), 2);
        assert_eq!(nodes.claim(dir.path(), "d").expect("appended to what is there"), 3);
        assert_eq!(Nodes::read(dir.path()).expect("read").names, names("a b c d"));
    }

    #[test]
    fn a_damaged_list_is_an_error_and_no_guess() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join(LIST), "[\"a\"").expect("written");
        assert!(Nodes::read(dir.path()).is_err());
    }
}
