//! Choosing a command by its name: what is typed must be in the name, letter after letter, with gaps.
//!
//! Uses the bindings and the prompt.

use super::bindings::Bindings;
use super::keymap::{Cmd, Place};
use super::prompt::{Prompt, Typed};

/// A command being chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Palette {
    /// What was typed.
    pub prompt: Prompt,
    /// Which of those that match.
    pub at: usize,
}

/// A command that can be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What it does.
    pub cmd: Cmd,
    /// Its name.
    pub name: String,
    /// Its keys.
    pub keys: String,
    /// What the help says.
    pub help: &'static str,
}

/// What a key did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chosen {
    /// Nothing yet.
    Open,
    /// It is given up.
    Nothing,
    /// This command.
    This(Cmd),
}

impl Palette {
    /// The commands that match, the best first.
    pub fn entries(&self, bindings: &Bindings, places: &[Place]) -> Vec<Entry> {
        let all = bindings.commands(places).into_iter().filter(|(cmd, ..)| *cmd != Cmd::Palette);
        let entry = |(cmd, keys, help): (Cmd, String, &'static str)| Entry { cmd, name: cmd.action(), keys, help };
        let mut found: Vec<(i32, Entry)> =
            all.map(entry).filter_map(|entry| Some((score(&self.prompt.text, &entry.name)?, entry))).collect();
        found.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        found.into_iter().map(|(_, entry)| entry).collect()
    }

    /// Takes a key by its name.
    pub fn key(&mut self, key: &str, bindings: &Bindings, places: &[Place]) -> Chosen {
        let found = self.entries(bindings, places);
        let last = found.len().saturating_sub(1);
        match key {
            "up" | "backtab" | "ctrl-p" => self.at = self.at.min(last).checked_sub(1).unwrap_or(last),
            "down" | "tab" | "ctrl-n" => self.at = if self.at >= last { 0 } else { self.at + 1 },
            key => match self.prompt.key(key) {
                Typed::On => self.at = 0,
                Typed::Off => return Chosen::Nothing,
                Typed::Done => return found.get(self.at.min(last)).map_or(Chosen::Nothing, |entry| Chosen::This(entry.cmd)),
            },
        }
        Chosen::Open
    }
}

/// How well a text has what was typed, letter after letter; `None`: not at all. Beginnings of words and neighbours count more.
fn score(typed: &str, text: &str) -> Option<i32> {
    let text: Vec<char> = text.chars().collect();
    let (mut at, mut score, mut last) = (0, 0, None);
    for c in typed.chars().filter(|c| !c.is_whitespace()).flat_map(char::to_lowercase) {
        let found = at + text.get(at..)?.iter().position(|known| *known == c)?;
        let begins = found == 0 || text.get(found - 1) == Some(&'-');
        score += if last == found.checked_sub(1) && last.is_some() { 3 } else { 0 } + if begins { 4 } else { 0 } - i32::from(found > at);
        (last, at) = (Some(found), found + 1);
    }
    // Of two that match alike, the shorter.
    Some(score * 100 - i32::try_from(text.len()).unwrap_or(i32::MAX / 200))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_with_gaps_find_a_command() {
        let (bindings, places) = (Bindings::default(), [Place::Run, Place::Logs, Place::All]);
        let first = |text: &str| {
            let palette = Palette { prompt: Prompt { text: text.to_owned() }, at: 0 };
            palette.entries(&bindings, &places).first().map(|entry| entry.name.clone())
        };
        assert_eq!(first("td").as_deref(), Some("tear-down"));
        assert_eq!(first("ovr").as_deref(), Some("overview"));
        assert_eq!(first("NR").as_deref(), Some("next-rank"));
        assert_eq!(first("qqq"), None);
        assert_eq!((score("ab", "xaxb"), score("ba", "ab")), (Some(-204), None));
    }

    #[test]
    fn what_is_chosen_is_what_is_marked() {
        let (bindings, places) = (Bindings::default(), [Place::All]);
        let mut palette = Palette::default();
        for key in ["t", "h", "e", "m"] {
            assert_eq!(palette.key(key, &bindings, &places), Chosen::Open);
        }
        assert_eq!(palette.key("enter", &bindings, &places), Chosen::This(Cmd::Theme));
        assert_eq!(palette.key("esc", &bindings, &places), Chosen::Nothing);
        let mut palette = Palette::default();
        let all = palette.entries(&bindings, &places);
        palette.key("down", &bindings, &places);
        assert_eq!(palette.key("enter", &bindings, &places), Chosen::This(all[1].cmd));
        palette.key("up", &bindings, &places);
        palette.key("up", &bindings, &places);
        assert_eq!(palette.at, all.len() - 1, "round the end");
    }

    /// Every command of the table that a key asks for is in the palette at its place.
    #[test]
    fn every_command_can_be_chosen() {
        let bindings = Bindings::default();
        for row in super::super::keymap::TABLE.iter().filter(|row| row.cmd != Cmd::Palette) {
            let entries = Palette::default().entries(&bindings, &[row.place, Place::All]);
            assert!(entries.iter().any(|entry| entry.cmd == row.cmd), "{row:?}");
        }
    }
}
