//! Chooses a command by name, by a common word for it, or by a word of its description; letters of a name may have gaps.

use super::key_bindings::{BoundCommand, KeyBindings};
use super::keymap::{KeyContext, UiCommand};
use super::text_input::{InputOutcome, TextInput};
use crate::text::translation::Lang;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandPalette {
    pub prompt: TextInput,
    /// Index into the matching commands.
    pub selected: usize,
}

/// Result of a key press.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PaletteOutcome {
    StillOpen,
    Cancelled,
    Selected(UiCommand),
}

impl CommandPalette {
    /// The matching commands, best first.
    pub fn matching_entries(&self, bindings: &KeyBindings, contexts: &[KeyContext]) -> Vec<BoundCommand> {
        let all = bindings.commands(contexts).into_iter().filter(|entry| entry.command != UiCommand::Palette);
        let mut found: Vec<(i32, BoundCommand)> = all.filter_map(|entry| Some((entry_score(&self.prompt.text, &entry)?, entry))).collect();
        found.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        found.into_iter().map(|(_, entry)| entry).collect()
    }

    pub fn handle_key(&mut self, key: &str, bindings: &KeyBindings, contexts: &[KeyContext]) -> PaletteOutcome {
        let found = self.matching_entries(bindings, contexts);
        let last = found.len().saturating_sub(1);
        match key {
            "up" | "backtab" | "ctrl-p" => self.selected = self.selected.min(last).checked_sub(1).unwrap_or(last),
            "down" | "tab" | "ctrl-n" => self.selected = if self.selected >= last { 0 } else { self.selected + 1 },
            key => match self.prompt.handle_key(key) {
                InputOutcome::Editing => self.selected = 0,
                InputOutcome::Cancelled => return PaletteOutcome::Cancelled,
                InputOutcome::Submitted => {
                    return found
                        .get(self.selected.min(last))
                        .map_or(PaletteOutcome::Cancelled, |entry| PaletteOutcome::Selected(entry.command));
                }
            },
        }
        PaletteOutcome::StillOpen
    }
}

/// The scores of a whole word of a name, and of a word of the description; letters with gaps are between them.
const WHOLE_WORD_SCORE: i32 = 100_000;
const DESCRIPTION_SCORE: i32 = -100_000;
/// Keys that only move the cursor come last.
const MOVEMENT_PENALTY: i32 = 50_000;

/// Words that other tools have for a command.
fn common_words(cmd: UiCommand) -> &'static [&'static str] {
    match cmd {
        UiCommand::Stop => &["halt", "terminate"],
        UiCommand::Kill => &["sigkill"],
        UiCommand::Restart => &["relaunch", "rerun"],
        UiCommand::TearDown => &["down", "delete", "remove"],
        UiCommand::Start => &["up", "launch", "run"],
        UiCommand::Shell => &["exec", "ssh", "bash"],
        UiCommand::Quit => &["exit", "leave"],
        UiCommand::DetachNow => &["detach"],
        UiCommand::Logs => &["log"],
        UiCommand::Find => &["search"],
        UiCommand::Sort => &["order"],
        _ => &[],
    }
}

fn is_movement(cmd: UiCommand) -> bool {
    use UiCommand::{Bottom, Down, HalfDown, HalfUp, Left, PageDown, PageUp, Right, Top, Up};
    matches!(cmd, Up | Down | PageUp | PageDown | HalfUp | HalfDown | Left | Right | Top | Bottom)
}

fn entry_score(typed: &str, entry: &BoundCommand) -> Option<i32> {
    let typed = typed.trim().to_lowercase();
    let own_name = entry.command.name();
    let names = || std::iter::once(own_name.as_str()).chain(common_words(entry.command).iter().copied());
    let is_word = !typed.is_empty() && names().any(|name| name == typed);
    let chinese = Lang::Zh.term(entry.help);
    let described = || {
        let has_word = |text: &str| typed.split_whitespace().all(|word| text.to_lowercase().contains(word));
        let is_described = !typed.is_empty() && (entry.help.to_lowercase().contains(&typed) || has_word(chinese));
        is_described.then_some(if chinese.starts_with(&typed) { DESCRIPTION_SCORE + 1 } else { DESCRIPTION_SCORE })
    };
    let score = match is_word {
        true => WHOLE_WORD_SCORE,
        false if typed.is_empty() => 0,
        false => names().filter_map(|name| fuzzy_score(&typed, name)).max().or_else(described)?,
    };
    Some(if is_movement(entry.command) { score - MOVEMENT_PENALTY } else { score })
}

/// Match score of `text`; `None` if it does not match. Word starts and consecutive letters score higher.
fn fuzzy_score(typed: &str, text: &str) -> Option<i32> {
    let text: Vec<char> = text.chars().collect();
    let (mut at, mut score, mut last) = (0, 0, None);
    for c in typed.chars().filter(|c| !c.is_whitespace()).flat_map(char::to_lowercase) {
        let found = at + text.get(at..)?.iter().position(|known| *known == c)?;
        let begins = found == 0 || text.get(found - 1) == Some(&'-');
        score += if last == found.checked_sub(1) && last.is_some() { 3 } else { 0 } + if begins { 4 } else { 0 } - i32::from(found > at);
        (last, at) = (Some(found), found + 1);
    }
    // Of two equal matches the shorter one wins.
    Some(score * 100 - i32::try_from(text.len()).unwrap_or(i32::MAX / 200))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::keymap::Screen;

    #[test]
    fn fuzzy_letters_find_a_command() {
        let (bindings, contexts) = (KeyBindings::default(), [KeyContext::Run, KeyContext::Screen(Screen::Logs), KeyContext::Global]);
        let best = |text: &str, contexts: &[KeyContext]| {
            let palette = CommandPalette { prompt: TextInput { text: text.to_owned() }, selected: 0 };
            palette.matching_entries(&bindings, contexts).first().map(|entry| entry.command.name())
        };
        let first = |text: &str| best(text, &contexts);
        assert_eq!(first("td").as_deref(), Some("tear-down"));
        assert_eq!(first("ovr").as_deref(), Some("overview"));
        assert_eq!(first("NR").as_deref(), Some("next-rank"));
        assert_eq!(first("qqq"), None);
        // The words of other tools, and those of the descriptions; a key that only moves the cursor comes last.
        for (typed, name) in [
            ("stop", "stop"),
            ("halt", "stop"),
            ("kill", "kill"),
            ("restart", "restart"),
            ("down", "tear-down"),
            ("delete", "tear-down"),
            ("exit", "quit"),
            ("ssh", "shell"),
            ("color scheme", "theme"),
        ] {
            assert_eq!(first(typed).as_deref(), Some(name), "{typed}");
        }
        for (typed, name) in [("filter", "find"), ("search", "find"), ("sort", "sort"), ("order", "sort"), ("problem", "problems")] {
            assert_eq!(best(typed, &[KeyContext::Screen(Screen::Overview), KeyContext::Global]).as_deref(), Some(name), "{typed}");
        }
        for (typed, name) in [("停止", "stop"), ("清理", "tear-down"), ("日志", "logs"), ("重新启动", "restart"), ("配色", "theme")]
        {
            assert_eq!(first(typed).as_deref(), Some(name), "{typed}");
        }
        let all = CommandPalette::default().matching_entries(&bindings, &[KeyContext::Global]);
        assert!(!is_movement(all[0].command) && is_movement(all[all.len() - 1].command), "{:?}", all[0]);
        assert_eq!((fuzzy_score("ab", "xaxb"), fuzzy_score("ba", "ab")), (Some(-204), None));
    }

    #[test]
    fn enter_selects_highlighted_entry() {
        let (bindings, contexts) = (KeyBindings::default(), [KeyContext::Global]);
        let mut palette = CommandPalette::default();
        for key in ["t", "h", "e", "m"] {
            assert_eq!(palette.handle_key(key, &bindings, &contexts), PaletteOutcome::StillOpen);
        }
        assert_eq!(palette.handle_key("enter", &bindings, &contexts), PaletteOutcome::Selected(UiCommand::Theme));
        assert_eq!(palette.handle_key("esc", &bindings, &contexts), PaletteOutcome::Cancelled);
        let mut palette = CommandPalette::default();
        let all = palette.matching_entries(&bindings, &contexts);
        palette.handle_key("down", &bindings, &contexts);
        assert_eq!(palette.handle_key("enter", &bindings, &contexts), PaletteOutcome::Selected(all[1].command));
        palette.handle_key("up", &bindings, &contexts);
        palette.handle_key("up", &bindings, &contexts);
        assert_eq!(palette.selected, all.len() - 1, "round the end");
    }

    /// The palette lists every bound command that applies in its context.
    #[test]
    fn palette_lists_every_command() {
        let bindings = KeyBindings::default();
        for row in super::super::default_bindings::DEFAULT_BINDINGS.iter().filter(|row| row.command != UiCommand::Palette) {
            let entries = CommandPalette::default().matching_entries(&bindings, &[row.context, KeyContext::Global]);
            assert!(entries.iter().any(|entry| entry.command == row.command), "{row:?}");
        }
    }
}
