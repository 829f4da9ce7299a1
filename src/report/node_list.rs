//! The node list of a log directory: the run's hosts in node-rank order. Log files are named after these numbers, independent of the inventory
//! of a later command.
//!
//! The names may come from a host: they are compared and never become part of a path.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use super::private_files::{lock_dir, private_options, read_bounded, sync_dir};

pub(super) const LIST_FILE: &str = ".nodes";
const MAX_NODES: usize = 1 << 16;
const MAX_LIST_BYTES: u64 = 16 << 20;

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct NodeList {
    names: Vec<String>,
    /// Whether the directory has the list.
    saved: bool,
}

impl NodeList {
    /// Reads the directory's list; empty if there is none.
    pub(super) fn read(dir: &Path) -> io::Result<NodeList> {
        let Some(text) = read_bounded(&dir.join(LIST_FILE), 0, MAX_LIST_BYTES)? else { return Ok(NodeList::default()) };
        Ok(NodeList { names: serde_json::from_slice(&text)?, saved: true })
    }

    /// The names, the host of node rank 0 first.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    pub(super) fn is_saved(&self) -> bool {
        self.saved
    }

    /// Sets the names unless the directory or an earlier call has set them.
    pub(super) fn set_default_names(&mut self, names: &[String]) {
        if !self.saved && self.names.is_empty() {
            let mut seen = std::collections::HashSet::new();
            self.names = names.iter().filter(|name| seen.insert(name.as_str())).take(MAX_NODES).cloned().collect();
        }
    }

    pub(super) fn find_number(&self, host: &str) -> Option<u32> {
        self.names.iter().position(|name| name == host).and_then(|at| u32::try_from(at).ok())
    }

    /// Writes the list if the directory has none and the names are known: those of a job that waits in a queue are not. A list that another
    /// process has written meanwhile takes precedence.
    pub(super) fn save_if_missing(&mut self, dir: &Path) -> io::Result<()> {
        if self.saved || self.names.is_empty() {
            return Ok(());
        }
        let _lock = lock_dir(dir)?;
        let on_disk = NodeList::read(dir)?;
        if on_disk.saved {
            *self = on_disk;
            return Ok(());
        }
        self.write(dir)
    }

    /// The number of a host; a new host gets the next free number.
    pub(super) fn find_or_append(&mut self, dir: &Path, host: &str) -> io::Result<u32> {
        if let Some(number) = self.find_number(host).filter(|_| self.saved) {
            return Ok(number);
        }
        let _lock = lock_dir(dir)?;
        let on_disk = NodeList::read(dir)?;
        if on_disk.saved {
            *self = on_disk;
        }
        if let Some(number) = self.find_number(host) {
            self.write(dir)?;
            return Ok(number);
        }
        let number = u32::try_from(self.names.len()).ok().filter(|_| self.names.len() < MAX_NODES);
        let number = number.ok_or_else(|| io::Error::other(format!("a run has at most {MAX_NODES} hosts")))?;
        self.names.push(host.to_owned());
        self.write(dir).inspect_err(|_| {
            self.names.pop();
        })?;
        Ok(number)
    }

    /// Writes atomically and durably: a number that a power cut loses would be given to another host.
    fn write(&mut self, dir: &Path) -> io::Result<()> {
        let draft = dir.join(format!("{LIST_FILE}.new"));
        let mut file = private_options(OpenOptions::new().write(true).create(true).truncate(true)).open(&draft)?;
        serde_json::to_writer(&mut file, &self.names)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        std::fs::rename(&draft, dir.join(LIST_FILE))?;
        sync_dir(dir)?;
        self.saved = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn first_list_wins_and_new_hosts_append() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut nodes = NodeList::read(dir.path()).expect("none is no error");
        nodes.set_default_names(&names("a b a"));
        nodes.save_if_missing(dir.path()).expect("written");
        let mut other = NodeList::default();
        other.set_default_names(&names("b a"));
        other.save_if_missing(dir.path()).expect("there is one");
        assert_eq!((other.find_number("a"), other.find_number("b"), other.find_number("c")), (Some(0), Some(1), None));
        assert_eq!(other.find_or_append(dir.path(), "c").expect("appended"), 2);
        assert_eq!(nodes.find_or_append(dir.path(), "d").expect("appended to what is there"), 3);
        assert_eq!(NodeList::read(dir.path()).expect("read").names, names("a b c d"));
    }

    #[test]
    fn damaged_list_is_an_error() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join(LIST_FILE), "[\"a\"").expect("written");
        assert!(NodeList::read(dir.path()).is_err());
    }
}
