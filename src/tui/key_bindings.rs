//! The effective key bindings: the defaults of `keymap` with the user's changes. Help, palette and hints come from
//! here.
//!
//! A readonly dashboard has no binding that changes something.

use crossterm::event::KeyEvent;

use super::default_bindings::DEFAULT_BINDINGS;
use super::keymap::{KeyContext, UiCommand, key_name, paired_command};

/// The keys of a command in one context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyBinding {
    pub context: KeyContext,
    /// Each key with its command; empty if the user removed all keys.
    pub keys: Vec<(String, UiCommand)>,
    /// The command; a pair of keys also has its counterpart.
    pub command: UiCommand,
    /// Help text.
    pub help: &'static str,
    /// Short form for the footer; empty if it is not shown there.
    pub hint: &'static str,
}

impl KeyBinding {
    /// The keys as shown in the help.
    pub fn join_keys(&self, separator: &str) -> String {
        self.keys.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>().join(separator)
    }

    /// Both commands of the row, also if their keys were removed.
    fn commands(&self) -> [UiCommand; 2] {
        [self.command, paired_command(self.command)]
    }
}

/// All key bindings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyBindings {
    rows: Vec<KeyBinding>,
}

impl Default for KeyBindings {
    fn default() -> KeyBindings {
        let row = |row: &super::default_bindings::DefaultBinding| {
            let key = |(at, key): (usize, &&str)| ((*key).to_owned(), if at == 1 { paired_command(row.command) } else { row.command });
            KeyBinding {
                context: row.context,
                keys: row.keys.iter().enumerate().map(key).collect(),
                command: row.command,
                help: row.help,
                hint: row.hint,
            }
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
        self.rows.iter().filter(move |row| row.context == context)
    }

    /// The command of a key in these contexts; earlier contexts win.
    pub fn command_for_key(&self, key: KeyEvent, contexts: &[KeyContext]) -> Option<UiCommand> {
        let name = key_name(key)?;
        contexts
            .iter()
            .find_map(|context| self.bindings_in(*context).flat_map(|row| &row.keys).find(|(key, _)| *key == name).map(|(_, cmd)| *cmd))
    }

    /// The keys of a command in these contexts; `None` if it has none.
    pub fn keys_for(&self, cmd: UiCommand, contexts: &[KeyContext]) -> Option<String> {
        let (.., keys, _) = self.commands(contexts).into_iter().find(|(known, ..)| *known == cmd)?;
        Some(keys).filter(|keys| !keys.is_empty())
    }

    /// Every command of these contexts once, with its keys and help text.
    pub fn commands(&self, contexts: &[KeyContext]) -> Vec<(UiCommand, String, &'static str)> {
        let mut all: Vec<(UiCommand, String, &'static str)> = Vec::new();
        for row in contexts.iter().flat_map(|context| self.bindings_in(*context)) {
            let [first, other] = row.commands();
            for cmd in if first == other { vec![first] } else { vec![first, other] } {
                let keys: Vec<&str> = row.keys.iter().filter(|(_, bound)| *bound == cmd).map(|(key, _)| key.as_str()).collect();
                match all.iter_mut().find(|(known, ..)| *known == cmd) {
                    Some((_, known, _)) if known.is_empty() => *known = keys.join(" "),
                    Some(_) => {}
                    None => all.push((cmd, keys.join(" "), row.help)),
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
            let context = row.context;
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
            let before = || self.rows[..at].iter().filter(|other| other.context == row.context).flat_map(|other| &other.keys);
            row.keys.iter().enumerate().find_map(|(n, (key, cmd))| {
                let other = before().chain(&row.keys[..n]).find(|(known, _)| known == key)?;
                Some(KeyConflict { key: key.clone(), context: row.context, commands: [other.1, *cmd] })
            })
        })
    }

    /// Removes every command that changes something.
    pub fn remove_mutating(&mut self) {
        self.rows.retain(|row| !row.command.is_mutating());
    }
}

/// Whether a text is a key name: `x`, `X`, `ctrl-s`, `f5`, `pgdn`, `space`.
pub(crate) fn is_key_name(text: &str) -> bool {
    const KEY_NAMES: [&str; 15] =
        ["space", "enter", "esc", "tab", "backtab", "up", "down", "left", "right", "pgup", "pgdn", "home", "end", "backspace", "delete"];
    let one = |text: &str| text.chars().count() == 1 && !text.chars().any(|c| c.is_control() || c.is_whitespace());
    let function = |text: &str| text.strip_prefix('f').and_then(|n| n.parse::<u8>().ok()).is_some_and(|n| (1..=12).contains(&n));
    let plain = |text: &str| KEY_NAMES.contains(&text) || function(text);
    match text.strip_prefix("ctrl-") {
        Some(rest) => plain(rest) || one(rest) && rest.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()),
        None => one(text) || plain(text),
    }
}

#[cfg(test)]
mod tests {
    use crossterm::event::{KeyCode, KeyModifiers};

    use super::*;

    fn command_for_char(bindings: &KeyBindings, c: char, contexts: &[KeyContext]) -> Option<UiCommand> {
        bindings.command_for_key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE), contexts)
    }

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
        let find = |code, modifiers| bindings.command_for_key(KeyEvent::new(code, modifiers), &[KeyContext::Logs, KeyContext::Global]);
        assert_eq!(find(KeyCode::Char(']'), KeyModifiers::NONE), Some(UiCommand::NextRank));
        assert_eq!(find(KeyCode::Char('['), KeyModifiers::NONE), Some(UiCommand::PrevRank));
        assert_eq!(find(KeyCode::Char('G'), KeyModifiers::SHIFT), Some(UiCommand::Bottom));
        assert_eq!(find(KeyCode::Char('d'), KeyModifiers::CONTROL), Some(UiCommand::HalfDown));
        assert_eq!(find(KeyCode::Char('d'), KeyModifiers::ALT), None);
        assert_eq!(find(KeyCode::Char('X'), KeyModifiers::NONE), None, "there is no run");
    }

    #[test]
    fn rebinding_adds_and_removes_keys() {
        let mut bindings = KeyBindings::default();
        bindings.rebind(UiCommand::PrevRank, &["(".to_owned(), "ctrl-p".to_owned()]);
        bindings.rebind(UiCommand::Theme, &[]);
        bindings.rebind(UiCommand::PrevHost, &["<".to_owned()]);
        assert_eq!(bindings.find_conflict(), None);
        let at = [KeyContext::Logs, KeyContext::Global];
        assert_eq!((command_for_char(&bindings, '(', &at), command_for_char(&bindings, '[', &at)), (Some(UiCommand::PrevRank), None));
        assert_eq!((command_for_char(&bindings, ']', &at), command_for_char(&bindings, 'T', &at)), (Some(UiCommand::NextRank), None));
        let row = bindings.bindings_in(KeyContext::Logs).find(|row| row.command == UiCommand::PrevRank).expect("a row");
        assert_eq!(row.join_keys("/"), "(/ctrl-p/]");
        let theme = bindings.commands(&at).into_iter().find(|(cmd, ..)| *cmd == UiCommand::Theme);
        assert_eq!(theme.map(|(_, keys, _)| keys), Some(String::new()), "the palette still has it");
    }

    #[test]
    fn readonly_has_no_mutating_keys() {
        let mut bindings = KeyBindings::default();
        let places = [KeyContext::Plan, KeyContext::Run, KeyContext::Global];
        assert_eq!(command_for_char(&bindings, 'X', &places), Some(UiCommand::TearDown));
        bindings.remove_mutating();
        for c in ['X', 'K', 'R', 'H', 'U'] {
            assert_eq!(command_for_char(&bindings, c, &places), None, "{c}");
        }
        assert!(bindings.commands(&places).iter().all(|(cmd, ..)| !cmd.is_mutating()));
    }

    #[test]
    fn key_names_are_validated() {
        assert!(["x", "X", "ctrl-s", "f12", "pgdn", "space", "ctrl-left", "$", "é"].into_iter().all(is_key_name));
        assert!(!["", "xx", "f13", "Ctrl-s", "ctrl-S", "alt-x", "none", " "].into_iter().any(is_key_name));
    }
}
