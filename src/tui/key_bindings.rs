//! The effective key bindings: the defaults with the user's changes. Help, palette and hints come from
//! here.
//!
//! A readonly dashboard has no binding that changes something.

use super::default_bindings::{DEFAULT_BINDINGS, DefaultBinding};
use super::keymap::{KeyContext, NAMED_KEYS, UiCommand, paired_command};

/// The keys of a command in one context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyBinding {
    pub(super) default: &'static DefaultBinding,
    /// Each key with its command; empty if the user removed all keys.
    pub keys: Vec<(String, UiCommand)>,
}

/// A command with its keys and help text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundCommand {
    pub command: UiCommand,
    pub keys: String,
    pub help: &'static str,
}

impl KeyBinding {
    /// The keys as shown in the help.
    pub fn join_keys(&self, separator: &str) -> String {
        self.keys.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>().join(separator)
    }

    /// Both commands of the row, also if their keys were removed.
    fn commands(&self) -> [UiCommand; 2] {
        [self.default.command, paired_command(self.default.command)]
    }
}

/// All key bindings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyBindings {
    rows: Vec<KeyBinding>,
}

impl Default for KeyBindings {
    fn default() -> KeyBindings {
        let row = |default: &'static DefaultBinding| {
            let commands = [default.command, paired_command(default.command)];
            KeyBinding { default, keys: default.keys.iter().map(|key| (*key).to_owned()).zip(commands).collect() }
        };
        KeyBindings { rows: DEFAULT_BINDINGS.iter().map(row).collect() }
    }
}

/// Two commands bound to one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyConflict {
    pub key: String,
    pub context: KeyContext,
    /// The conflicting commands.
    pub commands: [UiCommand; 2],
}

impl KeyBindings {
    pub fn bindings_in(&self, context: KeyContext) -> impl Iterator<Item = &KeyBinding> {
        self.rows.iter().filter(move |row| row.default.context == context)
    }

    /// The command of a key in these contexts; earlier contexts win.
    pub fn command_for_key(&self, key: &str, contexts: &[KeyContext]) -> Option<UiCommand> {
        let mut keys = contexts.iter().flat_map(|context| self.bindings_in(*context)).flat_map(|row| &row.keys);
        keys.find(|(known, _)| known == key).map(|(_, cmd)| *cmd)
    }

    /// The keys of a command in these contexts; `None` if it has none.
    pub fn keys_for(&self, cmd: UiCommand, contexts: &[KeyContext]) -> Option<String> {
        let found = self.commands(contexts).into_iter().find(|known| known.command == cmd)?;
        Some(found.keys).filter(|keys| !keys.is_empty())
    }

    /// A key that runs a command in these contexts; without one, what to type into the command palette.
    pub fn key_hint(&self, cmd: UiCommand, contexts: &[KeyContext]) -> String {
        let key_of = |cmd| {
            let rows = contexts.iter().flat_map(|context| self.bindings_in(*context));
            let mut keys = rows.flat_map(|row| &row.keys).filter(|(_, bound)| *bound == cmd).map(|(key, _)| key.as_str());
            keys.find(|key| self.command_for_key(key, contexts) == Some(cmd))
        };
        let palette = || match key_of(UiCommand::Palette) {
            Some(":") => format!(":{}", cmd.name()),
            Some(key) => format!("{key} {}", cmd.name()),
            None => cmd.name(),
        };
        key_of(cmd).map_or_else(palette, str::to_owned)
    }

    /// Every command of these contexts once.
    pub fn commands(&self, contexts: &[KeyContext]) -> Vec<BoundCommand> {
        let mut all: Vec<BoundCommand> = Vec::new();
        for row in contexts.iter().flat_map(|context| self.bindings_in(*context)) {
            let [first, other] = row.commands();
            for cmd in if first == other { vec![first] } else { vec![first, other] } {
                let keys: Vec<&str> = row.keys.iter().filter(|(_, bound)| *bound == cmd).map(|(key, _)| key.as_str()).collect();
                match all.iter_mut().find(|known| known.command == cmd) {
                    Some(known) if known.keys.is_empty() => known.keys = keys.join(" "),
                    Some(_) => {}
                    None => all.push(BoundCommand { command: cmd, keys: keys.join(" "), help: row.default.help }),
                }
            }
        }
        all
    }

    /// The command with this name.
    pub fn command_by_name(&self, action: &str) -> Option<UiCommand> {
        self.rows.iter().flat_map(KeyBinding::commands).find(|cmd| cmd.name() == action)
    }

    pub fn command_names(&self) -> Vec<String> {
        self.rows.iter().flat_map(KeyBinding::commands).map(UiCommand::name).collect()
    }

    /// Replaces the keys of a command in every context.
    pub fn rebind(&mut self, cmd: UiCommand, keys: &[String]) {
        for row in self.rows.iter_mut().filter(|row| row.commands().contains(&cmd)) {
            let at = row.keys.iter().position(|(_, bound)| *bound == cmd).unwrap_or(row.keys.len());
            row.keys.retain(|(_, bound)| *bound != cmd);
            for key in keys.iter().rev() {
                row.keys.insert(at.min(row.keys.len()), (key.clone(), cmd));
            }
        }
        // Removes duplicates of a key in several rows of a context.
        let mut seen: Vec<(KeyContext, String, UiCommand)> = Vec::new();
        for row in &mut self.rows {
            let context = row.default.context;
            row.keys.retain(|(key, bound)| {
                let known = (context, key.clone(), *bound);
                let new = !seen.contains(&known);
                seen.push(known);
                new
            });
        }
    }

    /// The first key that is bound to two commands in one context.
    pub fn find_conflict(&self) -> Option<KeyConflict> {
        self.rows.iter().enumerate().find_map(|(at, row)| {
            let before =
                || self.rows[..at].iter().filter(|other| other.default.context == row.default.context).flat_map(|other| &other.keys);
            row.keys.iter().enumerate().find_map(|(n, (key, cmd))| {
                let other = before().chain(&row.keys[..n]).find(|(known, _)| known == key)?;
                Some(KeyConflict { key: key.clone(), context: row.default.context, commands: [other.1, *cmd] })
            })
        })
    }

    /// Removes every command that changes something.
    pub fn remove_mutating(&mut self) {
        self.rows.retain(|row| !row.default.command.is_mutating());
    }
}

/// Whether a text is a key name: `x`, `X`, `ctrl-s`, `f5`, `pgdn`, `space`.
pub(crate) fn is_key_name(text: &str) -> bool {
    let one = |text: &str| text.chars().count() == 1 && !text.chars().any(|c| c.is_control() || c.is_whitespace());
    let function = |text: &str| text.strip_prefix('f').and_then(|n| n.parse::<u8>().ok()).is_some_and(|n| (1..=12).contains(&n));
    let plain = |text: &str| NAMED_KEYS.iter().any(|(_, name)| *name == text) || function(text);
    match text.strip_prefix("ctrl-") {
        Some(rest) => plain(rest) || one(rest) && rest.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()),
        None => one(text) || plain(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::keymap::Screen;

    const LOGS: KeyContext = KeyContext::Screen(Screen::Logs);

    #[test]
    fn default_keys_have_no_conflict() {
        assert_eq!(KeyBindings::default().find_conflict(), None);
        let mut wrong = KeyBindings::default();
        wrong.rebind(UiCommand::Theme, &["f".to_owned()]);
        assert_eq!(
            wrong.find_conflict(),
            Some(KeyConflict { key: "f".to_owned(), context: KeyContext::Global, commands: [UiCommand::Freeze, UiCommand::Theme] })
        );
    }

    #[test]
    fn nearest_context_wins() {
        let bindings = KeyBindings::default();
        let find = |key: &str| bindings.command_for_key(key, &[LOGS, KeyContext::Global]);
        assert_eq!(["]", "[", "G"].map(find), [UiCommand::NextRank, UiCommand::PrevRank, UiCommand::Bottom].map(Some));
        // As the help and the palette say it.
        assert_eq!(["e", "E"].map(find), [UiCommand::PrevError, UiCommand::NextError].map(Some));
        assert_eq!(find("X"), None, "there is no run");
    }

    #[test]
    fn rebinding_adds_and_removes_keys() {
        let mut bindings = KeyBindings::default();
        bindings.rebind(UiCommand::PrevRank, &["(".to_owned(), "ctrl-p".to_owned()]);
        bindings.rebind(UiCommand::Theme, &[]);
        bindings.rebind(UiCommand::PrevHost, &["<".to_owned()]);
        assert_eq!(bindings.find_conflict(), None);
        let at = [LOGS, KeyContext::Global];
        let find = |key: &str| bindings.command_for_key(key, &at);
        assert_eq!(["(", "[", "]", "T"].map(find), [Some(UiCommand::PrevRank), None, Some(UiCommand::NextRank), None]);
        let row = bindings.bindings_in(LOGS).find(|row| row.default.command == UiCommand::PrevRank).expect("a row");
        assert_eq!(row.join_keys("/"), "(/ctrl-p/]");
        let theme = bindings.commands(&at).into_iter().find(|known| known.command == UiCommand::Theme);
        assert_eq!(theme.map(|theme| theme.keys), Some(String::new()), "the palette still has it");
        let hints = [UiCommand::PrevRank, UiCommand::NextRank, UiCommand::Theme].map(|cmd| bindings.key_hint(cmd, &at));
        assert_eq!(hints, ["(", "]", ":theme"], "without a key, what to type into the palette");
        bindings.rebind(UiCommand::Problems, &["o".to_owned()]);
        let hints = [&at[..], &at[1..]].map(|contexts| bindings.key_hint(UiCommand::Problems, contexts));
        assert_eq!(hints, [":problems", "o"], "in a log the key has another meaning");
        assert_eq!(bindings.command_by_name("stop"), Some(UiCommand::Stop), "as the palette names it");
    }

    #[test]
    fn readonly_has_no_mutating_keys() {
        let mut bindings = KeyBindings::default();
        let contexts = [KeyContext::Plan, KeyContext::Run, KeyContext::Global];
        assert_eq!(bindings.command_for_key("X", &contexts), Some(UiCommand::TearDown));
        bindings.remove_mutating();
        for key in ["X", "K", "R", "H", "U"] {
            assert_eq!(bindings.command_for_key(key, &contexts), None, "{key}");
        }
        assert!(bindings.commands(&contexts).iter().all(|known| !known.command.is_mutating()));
    }

    #[test]
    fn key_names_are_validated() {
        assert!(["x", "X", "ctrl-s", "f12", "pgdn", "space", "ctrl-left", "$", "é"].into_iter().all(is_key_name));
        assert!(!["", "xx", "f13", "Ctrl-s", "ctrl-S", "alt-x", "none", " "].into_iter().any(is_key_name));
    }
}
