//! Dialogs: what will happen, and the choices with their keys. A harmless choice has the focus.
//!
//! A dialog closes when the capabilities of the run change. A destructive choice is
//! disabled for a moment, so that keys typed before the dialog could be read do not answer it.

use crate::event::UnixMillis;
use crate::text::host_patterns::compress_to_pattern;
use unicode_width::UnicodeWidthStr;

use super::feed::{DashboardRole, UserAction};
use super::model::Model;
use super::text_input::{InputOutcome, TextInput};

/// How long destructive choices stay disabled, in milliseconds of the feed's clock.
pub(crate) const CONFIRM_DELAY_MS: i64 = 300;
/// The most unreachable hosts that are listed.
const MAX_UNREACHABLE: usize = 4;
/// Maximum width of a text line; fits a screen of 80 columns.
pub(super) const TEXT_WIDTH: usize = 72;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DialogChoice {
    /// Change nothing.
    Cancel,
    /// Ask the command to do this.
    Do(UserAction),
}

impl DialogChoice {
    fn is_destructive(self) -> bool {
        matches!(self, DialogChoice::Do(UserAction::Stop | UserAction::Kill | UserAction::Restart | UserAction::TearDown))
    }
}

/// Text to type before a destructive choice is enabled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypedConfirmation {
    pub expected: String,
    pub input: TextInput,
    /// Enter was pressed on another text.
    pub is_wrong: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Dialog {
    pub title: String,
    /// Lines that explain what will happen.
    pub text: Vec<String>,
    /// Key, label and choice.
    pub choices: Vec<(&'static str, String, DialogChoice)>,
    /// Index of the choice that Enter selects.
    pub focus: usize,
    /// Text that must be typed first, if any.
    pub confirmation: Option<TypedConfirmation>,
    /// When the dialog opened, by the feed's clock.
    pub opened_at: UnixMillis,
}

impl Dialog {
    fn new(title: &str, text: Vec<String>, choices: Vec<(&'static str, String, DialogChoice)>, since: UnixMillis) -> Dialog {
        Dialog { title: title.to_owned(), text, choices, focus: 0, confirmation: None, opened_at: since }
    }

    /// `existing`: the run that is there, and what happens to it.
    pub fn confirm_start(model: &Model, existing: &str) -> Dialog {
        let choices =
            vec![("esc", "Cancel".to_owned(), DialogChoice::Cancel), ("U", "Start".to_owned(), DialogChoice::Do(UserAction::Start))];
        let names: Vec<String> = model.state.hosts.iter().map(|host| model.sanitize(&host.name)).collect();
        let ranks = match (model.state.ranks.len(), model.capabilities.plan_lines.first()) {
            // The plan's first line counts what has no number yet.
            (0, Some(line)) => model.counts_text(line.trim_start_matches("hosts").trim_start()),
            (count, _) => model.count(count, "rank"),
        };
        let hosts = compress_to_pattern(&names);
        let text = vec![model.lang.tr_fill("{} on {}", &[&ranks, &hosts]), model.sanitize(existing)];
        Dialog { focus: 1, ..Dialog::new(&format!("START {}", model.sanitize(&model.state.info.name)), text, choices, 0) }
    }

    /// The ways to leave, with their effect on the run.
    pub fn choose_exit(model: &Model) -> Dialog {
        let cancel = ("esc", "Cancel: stay here".to_owned(), DialogChoice::Cancel);
        let mut choices = Vec::new();
        let mut text = Vec::new();
        let counts = model.state.rank_counts();
        if model.capabilities.can_control {
            let counts = [model.count(counts.running, "running rank"), model.count(model.state.hosts.len(), "host")];
            text.push(model.lang.tr_fill("{} on {}", &[&counts[0], &counts[1]]));
            choices.push(("d", "Detach: leave the dashboard, the run continues".to_owned(), DialogChoice::Do(UserAction::Detach)));
            if model.state.stopping_since.is_none() && !model.readonly {
                choices.push((
                    "S",
                    "Stop: TERM to every rank, KILL after the grace; then apply `teardown`".to_owned(),
                    DialogChoice::Do(UserAction::Stop),
                ));
            }
            if !model.readonly {
                choices.push(("K", "Kill: KILL to every rank, with no time to save".to_owned(), DialogChoice::Do(UserAction::Kill)));
            }
        } else if model.is_tearing_down() {
            text.push("The teardown is running and will finish on its own.".to_owned());
            choices.push(("w", "Wait for it to finish".to_owned(), DialogChoice::Cancel));
            choices.push(("L", "Leave now: leftovers stay until `down`".to_owned(), DialogChoice::Do(UserAction::LeaveNow)));
            return Dialog::new("LEAVE", text, choices, model.now);
        } else {
            text.push("The launch is in progress.".to_owned());
            if model.capabilities.role == DashboardRole::Owner {
                choices.push((
                    "d",
                    "Detach: leave when all ranks have started; the run continues".to_owned(),
                    DialogChoice::Do(UserAction::Detach),
                ));
                if !model.readonly {
                    choices.push((
                        "S",
                        "Stop: start no further step, undo what was started".to_owned(),
                        DialogChoice::Do(UserAction::Stop),
                    ));
                }
            }
            choices.push(("L", "Leave now: what was started stays until `down`".to_owned(), DialogChoice::Do(UserAction::LeaveNow)));
        }
        choices.push(cancel);
        Dialog::new("LEAVE", text, choices, model.now)
    }

    pub fn confirm_stop(model: &Model) -> Dialog {
        let effect = ["effect   TERM to every rank, KILL after the grace; then apply `teardown`"];
        Dialog::yes_no(model, "STOP THE RUN", &effect, ("Yes: Stop", UserAction::Stop))
    }

    pub fn confirm_kill(model: &Model) -> Dialog {
        let effect = ["effect   KILL to every rank, with no time to save; then apply `teardown`"];
        Dialog::yes_no(model, "KILL THE RUN", &effect, ("Yes: Kill", UserAction::Kill))
    }

    pub fn confirm_restart(model: &Model) -> Dialog {
        let effect = [
            "effect   TERM to every rank, KILL after the grace; fetch the logs;",
            "         then launch the same plan again in the existing containers",
            LOST_WORK_LINE,
        ];
        Dialog::yes_no(model, "RESTART THE RUN", &effect, ("Yes: Restart", UserAction::Restart))
    }

    /// Teardown: the user must type the name of the run.
    pub fn confirm_teardown(model: &Model) -> Dialog {
        let name = model.sanitize(&model.state.info.name);
        let effect: &[&str] = if model.capabilities.can_control {
            &[
                "effect   TERM to every rank, KILL after the grace; fetch the logs;",
                "         then remove its containers, processes, files and locks",
                LOST_WORK_LINE,
            ]
        } else {
            &["effect   fetch the logs; then remove its containers, processes, files", "         and locks"]
        };
        let text = effect_lines(model, effect);
        let choices = vec![
            ("esc", "Cancel: change nothing".to_owned(), DialogChoice::Cancel),
            ("enter", format!("Tear down (type `{name}` first)"), DialogChoice::Do(UserAction::TearDown)),
        ];
        let word = Some(TypedConfirmation { expected: name, input: TextInput::default(), is_wrong: false });
        Dialog { confirmation: word, ..Dialog::new("TEAR DOWN THE RUN", text, choices, model.now) }
    }

    fn yes_no(model: &Model, title: &str, effect: &[&str], (yes, action): (&str, UserAction)) -> Dialog {
        let choices = vec![("n", "No: change nothing".to_owned(), DialogChoice::Cancel), ("y", yes.to_owned(), DialogChoice::Do(action))];
        Dialog::new(title, effect_lines(model, effect), choices, model.now)
    }

    /// Whether a choice can be selected now.
    pub fn is_enabled(&self, choice: DialogChoice, now: UnixMillis) -> bool {
        !choice.is_destructive()
            || now - self.opened_at >= CONFIRM_DELAY_MS && self.confirmation.as_ref().is_none_or(|word| word.input.text == word.expected)
    }

    /// Whether another text than the expected one was typed; the dialog then shows that and stays open.
    fn reject_wrong_text(&mut self) -> bool {
        let Some(word) = &mut self.confirmation else { return false };
        word.is_wrong = !word.input.text.is_empty() && word.input.text != word.expected;
        word.is_wrong
    }

    /// Handles a key; returns the selected choice, if any.
    pub fn handle_key(&mut self, key: &str, now: UnixMillis) -> Option<DialogChoice> {
        let last = self.choices.len().saturating_sub(1);
        let choice = match key {
            "esc" => DialogChoice::Cancel,
            "enter" if self.reject_wrong_text() => return None,
            "enter" => self.choices.get(self.focus)?.2,
            "tab" | "down" | "right" => {
                self.focus = if self.focus >= last { 0 } else { self.focus + 1 };
                return None;
            }
            "backtab" | "up" | "left" => {
                self.focus = if self.focus == 0 { last } else { self.focus - 1 };
                return None;
            }
            key => match &mut self.confirmation {
                Some(word) => {
                    word.is_wrong = false;
                    if matches!(word.input.handle_key(key), InputOutcome::Editing) {
                        // A complete name moves the focus to the destructive choice.
                        self.focus = if word.input.text == word.expected { last } else { 0 };
                    }
                    return None;
                }
                None if key == "q" => DialogChoice::Cancel,
                None => self.choices.iter().find(|choice| choice.0 == key)?.2,
            },
        };
        Some(choice).filter(|choice| self.is_enabled(*choice, now))
    }
}

/// Warns about unsaved work.
const LOST_WORK_LINE: &str = "lost     everything that the ranks have not saved";

fn run_summary_line(model: &Model) -> String {
    let counts = model.state.rank_counts();
    let names: Vec<String> = model.state.hosts.iter().map(|host| model.sanitize(&host.name)).collect();
    let ranks = model.capabilities.can_control.then(|| model.lang.tr_fill(", {}", &[&model.count(counts.running, "running rank")]));
    let (name, hosts) = (model.sanitize(&model.state.info.name), model.count(names.len(), "host"));
    let text = model.lang.tr_fill("run      {}  {}{}", &[&name, &hosts, &ranks.unwrap_or_default()]);
    let names = compress_to_pattern(&names);
    if UnicodeWidthStr::width(text.as_str()) + names.len() + 2 <= TEXT_WIDTH { format!("{text}  {names}") } else { text }
}

/// The run, what a command does to it, and the hosts that the command cannot reach.
fn effect_lines(model: &Model, effect: &[&str]) -> Vec<String> {
    let mut text = vec![run_summary_line(model)];
    text.extend(effect.iter().map(|line| (*line).to_owned()));
    let lost = || (0_u32..).zip(&model.state.hosts).filter(|(_, host)| host.is_lost());
    for (at, host) in lost().take(MAX_UNREACHABLE) {
        let ranks = model.state.ranks.values().filter(|rank| rank.host == at && rank.is_running()).count();
        text.push(format!("UNREACHABLE  {}: {} may still run there", model.sanitize(&host.name), model.count(ranks, "rank")));
    }
    let more = lost().skip(MAX_UNREACHABLE).count();
    text.extend((more > 0).then(|| format!("             and {more} more")));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::feed::DashboardCapabilities;
    use crate::tui::fixtures;
    use crate::tui::keymap::UiCommand;

    #[test]
    fn keys_select_the_labelled_choice() {
        let mut dialog = Dialog::confirm_start(&fixtures::healthy().app.model, "no run exists");
        assert_eq!(dialog.handle_key("U", 0), Some(DialogChoice::Do(UserAction::Start)));
        assert_eq!(dialog.handle_key("enter", 0), Some(DialogChoice::Do(UserAction::Start)));
        assert_eq!(dialog.handle_key("x", 0), None);
        assert_eq!((dialog.handle_key("tab", 0), dialog.handle_key("enter", 0)), (None, Some(DialogChoice::Cancel)));
        assert_eq!((dialog.handle_key("backtab", 0), dialog.focus), (None, 1));
        assert_eq!(dialog.handle_key("esc", 0), Some(DialogChoice::Cancel));
    }

    /// Checks for every dialog that the label of each choice matches its effect.
    #[test]
    fn choices_send_matching_actions() {
        let answer = |cmd: UiCommand, keys: &[&str]| {
            let mut scene = fixtures::healthy();
            scene.app.update(cmd);
            scene.advance(CONFIRM_DELAY_MS);
            let Some(super::super::ui::Overlay::Dialog(dialog)) = &scene.app.ui.overlay else { panic!("{cmd:?} opens a dialog") };
            let words = dialog.choices.iter().map(|(_, label, _)| label.split([':', ' ', ',']).next().unwrap_or("").to_owned()).collect();
            keys.iter().for_each(|key| {
                scene.app.handle_overlay_key(key);
            });
            let words: Vec<String> = words;
            (words, scene.app.pending_actions.clone())
        };
        let name = ["w", "a", "n", "2", "2"];
        assert_eq!(answer(UiCommand::Stop, &["y"]), (vec!["No".into(), "Yes".into()], vec![UserAction::Stop]));
        assert_eq!(answer(UiCommand::Kill, &["y"]).1, vec![UserAction::Kill]);
        assert_eq!(answer(UiCommand::Restart, &["y"]).1, vec![UserAction::Restart]);
        for cmd in [UiCommand::Stop, UiCommand::Kill, UiCommand::Restart] {
            for keys in [&["n"][..], &["enter"], &["esc"], &["q"], &["x", "enter"]] {
                assert_eq!(answer(cmd, keys).1, vec![], "{cmd:?} {keys:?}");
            }
            assert_eq!(answer(cmd, &["tab", "enter"]).1.len(), 1, "one Tab to the other answer");
        }
        assert_eq!(answer(UiCommand::TearDown, &[]).0, vec!["Cancel".to_owned(), "Tear".to_owned()]);
        assert_eq!(answer(UiCommand::TearDown, &[&name[..], &["enter"]].concat()).1, vec![UserAction::TearDown]);
        for keys in [&["enter"][..], &["tab", "enter"], &["w", "a", "n", "2", "enter"], &["y"], &name, &["esc"]] {
            assert_eq!(answer(UiCommand::TearDown, keys).1, vec![], "{keys:?}");
        }
        assert_eq!(answer(UiCommand::TearDown, &[&name[..], &["x", "backspace", "enter"]].concat()).1, vec![UserAction::TearDown]);
        assert_eq!(answer(UiCommand::TearDown, &[&name[..], &["3", "enter"]].concat()).1, vec![]);
        assert_eq!(
            answer(UiCommand::Quit, &["enter"]),
            (vec!["Detach".into(), "Stop".into(), "Kill".into(), "Cancel".into()], vec![UserAction::Detach])
        );
        assert_eq!(
            (answer(UiCommand::Quit, &["S"]).1, answer(UiCommand::Quit, &["K"]).1),
            (vec![UserAction::Stop], vec![UserAction::Kill])
        );
    }

    #[test]
    fn destructive_choices_are_disabled_at_first() {
        let mut scene = fixtures::healthy();
        let name = ["w", "a", "n", "2", "2", "enter"];
        for (cmd, keys) in [(UiCommand::TearDown, &name[..]), (UiCommand::Kill, &["y"]), (UiCommand::Quit, &["K"])] {
            scene.app.update(cmd);
            keys.iter().for_each(|key| assert!(scene.app.handle_overlay_key(key)));
            scene.advance(CONFIRM_DELAY_MS - 1);
            scene.app.handle_overlay_key(keys[keys.len() - 1]);
            assert_eq!(scene.app.pending_actions, vec![], "{cmd:?}");
            scene.advance(1);
            scene.app.handle_overlay_key(keys[keys.len() - 1]);
            assert_eq!(scene.app.pending_actions.len(), 1, "{cmd:?}");
            scene.app.pending_actions.clear();
        }
    }

    #[test]
    fn dialog_lists_unreachable_hosts() {
        let mut scene = fixtures::bad_day();
        scene.app.update(UiCommand::TearDown);
        let Some(super::super::ui::Overlay::Dialog(dialog)) = &scene.app.ui.overlay else { panic!("a dialog opens") };
        assert!(dialog.text.contains(&"UNREACHABLE  gpu09: 8 ranks may still run there".to_owned()), "{:?}", dialog.text);
        assert!(dialog.text.iter().any(|line| line.contains("gpu[00-15]")), "{:?}", dialog.text);
        assert!(dialog.text.iter().all(|line| line.len() <= TEXT_WIDTH), "{:?}", dialog.text);
        assert_eq!(dialog.choices[dialog.focus].2, DialogChoice::Cancel);
    }

    #[test]
    fn readonly_opens_no_destructive_dialog() {
        let mut scene = fixtures::healthy();
        scene.app.set_readonly();
        for cmd in [UiCommand::TearDown, UiCommand::Kill, UiCommand::Restart, UiCommand::Stop] {
            scene.app.update(cmd);
            assert_eq!((&scene.app.ui.overlay, &scene.app.pending_actions), (&None, &vec![]), "{cmd:?}");
        }
        let choices = Dialog::choose_exit(&scene.app.model).choices;
        assert!(choices.iter().all(|(.., choice)| !choice.is_destructive()), "{choices:?}");
        scene.app.handle_message(crate::tui::feed::FeedMessage::Capabilities(DashboardCapabilities {
            start_summary: Some("new".to_owned()),
            ..DashboardCapabilities::view_only(DashboardRole::Observer)
        }));
        scene.app.update(UiCommand::Start);
        assert_eq!(scene.app.ui.overlay, None);
    }
}
