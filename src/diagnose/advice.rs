//! Commands that a person is advised to type: complete, so that they can be pasted. The one place that writes them.
//!
//! Uses `shell`. Texts elsewhere say `orchestrate VERB …`; here they get what names the inventory, and `ssh HOST` what reaches the host.

use std::collections::BTreeMap;

use crate::shell::quote;

/// The commands that take an inventory as their first word.
const FIRST: [&str; 11] = ["up", "tui", "down", "ps", "logs", "attach", "check", "plan", "render", "exec", "stacks"];
/// Those that take it by `-i` only.
const BY_FLAG: [&str; 1] = ["shell"];
/// What a command begins with.
const PROGRAM: &str = "orchestrate ";

/// What names the inventory of an operation and reaches its hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Advice {
    /// Inventory files, as words of a shell.
    files: Vec<String>,
    /// Further words that every command needs: `-F lab.conf`.
    flags: String,
    /// What follows `ssh` for each host.
    hosts: BTreeMap<String, String>,
}

impl Advice {
    /// Of these inventory files and flags; `hosts`: the words that reach each host by ssh.
    pub fn new(files: &[String], flags: &[String], hosts: BTreeMap<String, String>) -> Advice {
        let flags = flags.iter().map(|flag| quote(flag)).collect::<Vec<_>>().join(" ");
        Advice { files: files.iter().map(|file| quote(file)).collect(), flags, hosts }
    }

    /// `orchestrate logs train.yaml --rank 3`.
    pub fn command(&self, verb: &str, rest: &str) -> String {
        let inventory = self.inventory(verb);
        let words = [PROGRAM.trim_end(), verb, inventory.as_str(), rest];
        words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    }

    /// The words that follow `ssh` to reach a host.
    pub fn ssh(&self, host: &str) -> String {
        self.hosts.get(host).cloned().unwrap_or_else(|| quote(host))
    }

    /// A text in which every command is complete.
    pub fn complete(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find(PROGRAM) {
            let (before, after) = rest.split_at(at + PROGRAM.len());
            out.push_str(before);
            let end = after.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(after.len());
            let (verb, tail) = after.split_at(end);
            let inventory = self.inventory(verb);
            let word = before[..at].chars().next_back().is_none_or(|c| !c.is_alphanumeric() && !matches!(c, '-' | '_' | '/' | '.'));
            out.push_str(verb);
            if word && !inventory.is_empty() && !tail.starts_with(&format!(" {inventory}")) {
                out.push(' ');
                out.push_str(&inventory);
            }
            rest = tail;
        }
        out.push_str(rest);
        out
    }

    /// The words after this command that name the inventory; none where it takes none.
    fn inventory(&self, verb: &str) -> String {
        let first = FIRST.contains(&verb);
        if !first && !BY_FLAG.contains(&verb) {
            return String::new();
        }
        let file = |(at, file): (usize, &String)| if at == 0 && first { file.clone() } else { format!("-i {file}") };
        let files = self.files.iter().enumerate().map(file);
        files.chain((!self.flags.is_empty()).then(|| self.flags.clone())).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(files: &[&str], flags: &[&str]) -> Advice {
        let text = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        let hosts = BTreeMap::from([("lab2".to_owned(), "-p 2222 -i /k ops@10.0.0.2".to_owned())]);
        Advice::new(&text(files), &text(flags), hosts)
    }

    #[test]
    fn every_command_names_the_inventory() {
        let one = advice(&["my runs/a.yaml"], &[]);
        assert_eq!(one.command("logs", "--rank 3"), "orchestrate logs 'my runs/a.yaml' --rank 3");
        assert_eq!(one.command("runs", ""), "orchestrate runs");
        let text = "`orchestrate exec -- ls`; orchestrate shell r3 -- env; myorchestrate ps; orchestrate runs; orchestrate ps";
        let complete = "`orchestrate exec 'my runs/a.yaml' -- ls`; orchestrate shell -i 'my runs/a.yaml' r3 -- env; myorchestrate ps; \
                        orchestrate runs; orchestrate ps 'my runs/a.yaml'";
        assert_eq!(one.complete(text), complete);
        assert_eq!(one.complete(complete), complete, "a second time changes nothing");
        let two = advice(&["a.yaml", "b.yaml"], &["-F", "lab.conf"]);
        assert_eq!(two.command("ps", ""), "orchestrate ps a.yaml -i b.yaml -F lab.conf");
        assert_eq!(two.command("shell", "0"), "orchestrate shell -i a.yaml -i b.yaml -F lab.conf 0");
        let none = Advice::default();
        assert_eq!((none.complete(text), none.ssh("lab 2")), (text.to_owned(), "'lab 2'".to_owned()));
        assert_eq!(one.ssh("lab2"), "-p 2222 -i /k ops@10.0.0.2");
    }
}
