//! The keys that count: the table of `keymap` with what a person changed in it. Keys are looked up here, and help, palette and hints are
//! drawn from here.
//!
//! Uses `keymap`. Who may only look has no row for what changes something.

use crossterm::event::KeyEvent;

use super::keymap::{Cmd, Place, TABLE, name, second};

/// A row: what keys ask at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Where.
    pub place: Place,
    /// Each key with what it asks; none where a person took them away.
    pub keys: Vec<(String, Cmd)>,
    /// What the row is about; a pair of keys asks for this and its counterpart.
    pub cmd: Cmd,
    /// What the help says.
    pub help: &'static str,
    /// The same in a word or two, for the last line of the screen; empty: not told there.
    pub hint: &'static str,
}

impl Row {
    /// The keys as they are written in the help.
    pub fn names(&self, between: &str) -> String {
        self.keys.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>().join(between)
    }

    /// All that its keys ask for, or did before they were taken away.
    fn cmds(&self) -> [Cmd; 2] {
        [self.cmd, second(self.cmd)]
    }
}

/// All keys that count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bindings {
    rows: Vec<Row>,
}

impl Default for Bindings {
    fn default() -> Bindings {
        let row = |row: &super::keymap::Binding| {
            let key = |(at, key): (usize, &&str)| ((*key).to_owned(), if at == 1 { second(row.cmd) } else { row.cmd });
            Row { place: row.place, keys: row.keys.iter().enumerate().map(key).collect(), cmd: row.cmd, help: row.help, hint: row.hint }
        };
        Bindings { rows: TABLE.iter().map(row).collect() }
    }
}

/// Two commands under one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clash {
    /// The key.
    pub key: String,
    /// Where.
    pub place: Place,
    /// What it would ask for.
    pub cmds: [Cmd; 2],
}

impl Bindings {
    /// The rows of a place.
    pub fn rows(&self, place: Place) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.place == place)
    }

    /// What a key asks at these places; earlier places win.
    pub fn find(&self, key: KeyEvent, places: &[Place]) -> Option<Cmd> {
        let name = name(key)?;
        places.iter().find_map(|place| self.rows(*place).flat_map(|row| &row.keys).find(|(key, _)| *key == name).map(|(_, cmd)| *cmd))
    }

    /// The keys of a command at these places; none where it has none.
    pub fn keys(&self, cmd: Cmd, places: &[Place]) -> Option<String> {
        let (.., keys, _) = self.commands(places).into_iter().find(|(known, ..)| *known == cmd)?;
        Some(keys).filter(|keys| !keys.is_empty())
    }

    /// Every command of these places once, with its keys and what the help says.
    pub fn commands(&self, places: &[Place]) -> Vec<(Cmd, String, &'static str)> {
        let mut all: Vec<(Cmd, String, &'static str)> = Vec::new();
        for row in places.iter().flat_map(|place| self.rows(*place)) {
            let [first, other] = row.cmds();
            for cmd in if first == other { vec![first] } else { vec![first, other] } {
                let keys: Vec<&str> = row.keys.iter().filter(|(_, asks)| *asks == cmd).map(|(key, _)| key.as_str()).collect();
                match all.iter_mut().find(|(known, ..)| *known == cmd) {
                    Some((_, known, _)) if known.is_empty() => *known = keys.join(" "),
                    Some(_) => {}
                    None => all.push((cmd, keys.join(" "), row.help)),
                }
            }
        }
        all
    }

    /// The command of that name.
    pub fn named(&self, action: &str) -> Option<Cmd> {
        self.rows.iter().flat_map(Row::cmds).find(|cmd| cmd.action() == action)
    }

    /// The names of all commands.
    pub fn actions(&self) -> Vec<String> {
        self.rows.iter().flat_map(Row::cmds).map(Cmd::action).collect()
    }

    /// Gives a command these keys instead of its own, wherever it has any.
    pub fn bind(&mut self, cmd: Cmd, keys: &[String]) {
        for row in self.rows.iter_mut().filter(|row| row.cmds().contains(&cmd)) {
            let at = row.keys.iter().position(|(_, asks)| *asks == cmd).unwrap_or(row.keys.len());
            row.keys.retain(|(_, asks)| *asks != cmd);
            for key in keys.iter().rev() {
                row.keys.insert(at.min(row.keys.len()), (key.clone(), cmd));
            }
        }
        // What stood in several rows of a place is one now.
        let mut seen: Vec<(Place, String, Cmd)> = Vec::new();
        for row in &mut self.rows {
            let place = row.place;
            row.keys.retain(|(key, asks)| {
                let known = (place, key.clone(), *asks);
                let new = !seen.contains(&known);
                seen.push(known);
                new
            });
        }
    }

    /// The first key that asks for two things at one place.
    pub fn clash(&self) -> Option<Clash> {
        self.rows.iter().enumerate().find_map(|(at, row)| {
            let before = || self.rows[..at].iter().filter(|other| other.place == row.place).flat_map(|other| &other.keys);
            row.keys.iter().enumerate().find_map(|(n, (key, cmd))| {
                let other = before().chain(&row.keys[..n]).find(|(known, _)| known == key)?;
                Some(Clash { key: key.clone(), place: row.place, cmds: [other.1, *cmd] })
            })
        })
    }

    /// Takes everything away that changes something.
    pub fn only_look(&mut self) {
        self.rows.retain(|row| !row.cmd.changes());
    }
}

/// Whether a text names a key: `x`, `X`, `ctrl-s`, `f5`, `pgdn`, `space`.
pub fn is_key(text: &str) -> bool {
    const NAMED: [&str; 15] =
        ["space", "enter", "esc", "tab", "backtab", "up", "down", "left", "right", "pgup", "pgdn", "home", "end", "backspace", "delete"];
    let one = |text: &str| text.chars().count() == 1 && !text.chars().any(|c| c.is_control() || c.is_whitespace());
    let function = |text: &str| text.strip_prefix('f').and_then(|n| n.parse::<u8>().ok()).is_some_and(|n| (1..=12).contains(&n));
    let plain = |text: &str| NAMED.contains(&text) || function(text);
    match text.strip_prefix("ctrl-") {
        Some(rest) => plain(rest) || one(rest) && rest.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()),
        None => one(text) || plain(text),
    }
}

#[cfg(test)]
mod tests {
    use crossterm::event::{KeyCode, KeyModifiers};

    use super::*;

    fn press(bindings: &Bindings, c: char, places: &[Place]) -> Option<Cmd> {
        bindings.find(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE), places)
    }

    #[test]
    fn no_key_means_two_things_at_one_place() {
        assert_eq!(Bindings::default().clash(), None);
        let mut wrong = Bindings::default();
        wrong.bind(Cmd::Theme, &["f".to_owned()]);
        assert_eq!(wrong.clash(), Some(Clash { key: "f".to_owned(), place: Place::All, cmds: [Cmd::Freeze, Cmd::Theme] }));
    }

    #[test]
    fn keys_are_found_and_nearer_places_win() {
        let bindings = Bindings::default();
        let find = |code, modifiers| bindings.find(KeyEvent::new(code, modifiers), &[Place::Logs, Place::All]);
        assert_eq!(find(KeyCode::Char(']'), KeyModifiers::NONE), Some(Cmd::NextRank));
        assert_eq!(find(KeyCode::Char('['), KeyModifiers::NONE), Some(Cmd::PrevRank));
        assert_eq!(find(KeyCode::Char('G'), KeyModifiers::SHIFT), Some(Cmd::Bottom));
        assert_eq!(find(KeyCode::Char('d'), KeyModifiers::CONTROL), Some(Cmd::HalfDown));
        assert_eq!(find(KeyCode::Char('d'), KeyModifiers::ALT), None);
        assert_eq!(find(KeyCode::Char('X'), KeyModifiers::NONE), None, "there is no run");
    }

    #[test]
    fn a_person_gives_and_takes_keys() {
        let mut bindings = Bindings::default();
        bindings.bind(Cmd::PrevRank, &["(".to_owned(), "ctrl-p".to_owned()]);
        bindings.bind(Cmd::Theme, &[]);
        bindings.bind(Cmd::PrevHost, &["<".to_owned()]);
        assert_eq!(bindings.clash(), None);
        let at = [Place::Logs, Place::All];
        assert_eq!((press(&bindings, '(', &at), press(&bindings, '[', &at)), (Some(Cmd::PrevRank), None));
        assert_eq!((press(&bindings, ']', &at), press(&bindings, 'T', &at)), (Some(Cmd::NextRank), None));
        let row = bindings.rows(Place::Logs).find(|row| row.cmd == Cmd::PrevRank).expect("a row");
        assert_eq!(row.names("/"), "(/ctrl-p/]");
        let theme = bindings.commands(&at).into_iter().find(|(cmd, ..)| *cmd == Cmd::Theme);
        assert_eq!(theme.map(|(_, keys, _)| keys), Some(String::new()), "the palette still has it");
    }

    #[test]
    fn who_may_only_look_has_no_key_that_changes_something() {
        let mut bindings = Bindings::default();
        let places = [Place::Plan, Place::Run, Place::All];
        assert_eq!(press(&bindings, 'X', &places), Some(Cmd::TearDown));
        bindings.only_look();
        for c in ['X', 'K', 'R', 'H', 'U'] {
            assert_eq!(press(&bindings, c, &places), None, "{c}");
        }
        assert!(bindings.commands(&places).iter().all(|(cmd, ..)| !cmd.changes()));
    }

    #[test]
    fn keys_have_names() {
        assert!(["x", "X", "ctrl-s", "f12", "pgdn", "space", "ctrl-left", "$", "é"].into_iter().all(is_key));
        assert!(!["", "xx", "f13", "Ctrl-s", "ctrl-S", "alt-x", "none", " "].into_iter().any(is_key));
    }
}
