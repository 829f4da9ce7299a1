//! Questions: what is about to happen in words, and the answers with their keys. The harmless answer has the focus.
//!
//! Uses the app for what is the case. A question about a run that has changed meanwhile is taken away, not answered. What destroys cannot be
//! answered at once: keys that were typed before one could read the question must not answer it.

use crate::event::Millis;
use crate::inventory::expand::fold;
use crate::report::words::count;
use crate::state::Liveness;

use super::app::App;
use super::feed::Role;
use super::prompt::{Prompt, Typed};

/// How long an answer that destroys is dead, milliseconds of the feed.
pub const DEAD: i64 = 300;
/// The columns of a line of text; a screen of 80 shows all of it.
pub(super) const WIDTH: usize = 72;

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Leave all as it is.
    Cancel,
    /// Start what the plan shows.
    Start,
    /// Leave the run alone and end.
    Detach,
    /// End every rank with time to save.
    Stop,
    /// End every rank now.
    Kill,
    /// Stop the gang and launch it again.
    Restart,
    /// Stop and remove everything.
    TearDown,
    /// Leave now, whatever is under way.
    Leave,
}

impl Choice {
    fn destroys(self) -> bool {
        matches!(self, Choice::Stop | Choice::Kill | Choice::Restart | Choice::TearDown)
    }
}

/// What must be typed before the answer that destroys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// The word.
    pub wanted: String,
    /// What was typed.
    pub typed: Prompt,
}

/// A question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialog {
    /// What it is about.
    pub title: String,
    /// What will happen, in lines.
    pub text: Vec<String>,
    /// Key, label and meaning.
    pub choices: Vec<(&'static str, String, Choice)>,
    /// Which answer Enter gives.
    pub focus: usize,
    /// What must be typed, where something must.
    pub word: Option<Word>,
    /// When it was asked, by the feed's clock.
    pub since: Millis,
}

impl Dialog {
    fn of(title: &str, text: Vec<String>, choices: Vec<(&'static str, String, Choice)>, since: Millis) -> Dialog {
        Dialog { title: title.to_owned(), text, choices, focus: 0, word: None, since }
    }

    /// Before a launch.
    pub fn start(name: &str, what: &str) -> Dialog {
        let choices = vec![("esc", "Cancel".to_owned(), Choice::Cancel), ("U", "Start".to_owned(), Choice::Start)];
        Dialog { focus: 1, ..Dialog::of(&format!("START {name}"), vec![what.to_owned()], choices, 0) }
    }

    /// How to leave, and what each way does to the run.
    pub fn quit(app: &App) -> Dialog {
        let cancel = ("esc", "Cancel: stay here".to_owned(), Choice::Cancel);
        let mut choices = Vec::new();
        let mut text = Vec::new();
        let counts = app.state.rank_counts();
        if app.offer.act {
            text.push(format!("{} on {}", count(counts.running, "running rank"), count(app.state.hosts.len(), "host")));
            choices.push(("d", "Detach: this screen ends, the run goes on".to_owned(), Choice::Detach));
            if app.state.stopping.is_none() && !app.readonly {
                choices.push(("S", "Stop: TERM to every rank, KILL after the grace; then as `teardown` says".to_owned(), Choice::Stop));
            }
            if !app.readonly {
                choices.push(("K", "Kill: KILL to every rank, nothing is saved".to_owned(), Choice::Kill));
            }
        } else if app.tearing_down() {
            text.push("A teardown is under way; it ends by itself.".to_owned());
            choices.push(("w", "Wait for its end".to_owned(), Choice::Cancel));
            choices.push(("L", "Leave at once: what is left stays until `down`".to_owned(), Choice::Leave));
            return Dialog::of("LEAVE", text, choices, app.now);
        } else {
            text.push("The launch is under way.".to_owned());
            if app.offer.role == Role::Launcher {
                choices.push(("d", "Detach: once every rank has been started; the run goes on".to_owned(), Choice::Detach));
                if !app.readonly {
                    choices.push(("S", "Stop: no further step is begun, what was begun is undone".to_owned(), Choice::Stop));
                }
            }
            choices.push(("L", "Leave at once: what was begun stays until `down`".to_owned(), Choice::Leave));
        }
        choices.push(cancel);
        Dialog::of("LEAVE", text, choices, app.now)
    }

    /// Before every rank is told to end.
    pub fn stop(app: &App) -> Dialog {
        let text = vec![running(app), "effect   TERM to every rank, KILL after the grace; then as `teardown` says".to_owned()];
        Dialog::no_or_yes("STOP THE RUN", unreached(app, text), "Stop", Choice::Stop, app.now)
    }

    /// Before every rank is killed.
    pub fn kill(app: &App) -> Dialog {
        let text = vec![running(app), "effect   KILL to every rank: nothing is saved; then as `teardown` says".to_owned()];
        Dialog::no_or_yes("KILL THE RUN", unreached(app, text), "Kill", Choice::Kill, app.now)
    }

    /// Before the gang is stopped and launched again.
    pub fn restart(app: &App) -> Dialog {
        let text = vec![
            running(app),
            "effect   TERM to every rank, KILL after the grace; the logs are fetched;".to_owned(),
            "         then the same plan again, in the containers that are there".to_owned(),
            LOST.to_owned(),
        ];
        Dialog::no_or_yes("RESTART THE RUN", unreached(app, text), "Restart", Choice::Restart, app.now)
    }

    /// Before everything is removed: the name is typed.
    pub fn tear_down(app: &App) -> Dialog {
        let name = app.clean(&app.state.info.name);
        let mut text = vec![running(app)];
        if app.offer.act {
            text.push("effect   TERM to every rank, KILL after the grace; the logs are fetched;".to_owned());
            text.push("         then containers, processes, files and locks of this name go".to_owned());
            text.push(LOST.to_owned());
        } else {
            text.push("effect   the logs are fetched; then containers, processes, files and".to_owned());
            text.push("         locks of this name are removed".to_owned());
        }
        let text = unreached(app, text);
        let choices = vec![
            ("esc", "Cancel: leave all as it is".to_owned(), Choice::Cancel),
            ("enter", format!("Tear down, once `{name}` is typed"), Choice::TearDown),
        ];
        let word = Some(Word { wanted: name, typed: Prompt::default() });
        Dialog { word, ..Dialog::of("TEAR DOWN THE RUN", text, choices, app.now) }
    }

    fn no_or_yes(title: &str, text: Vec<String>, verb: &str, choice: Choice, since: Millis) -> Dialog {
        let choices = vec![("n", "No: leave all as it is".to_owned(), Choice::Cancel), ("y", format!("Yes: {verb}"), choice)];
        Dialog::of(title, text, choices, since)
    }

    /// Whether an answer can be given now.
    pub fn alive(&self, choice: Choice, now: Millis) -> bool {
        !choice.destroys() || now - self.since >= DEAD && self.word.as_ref().is_none_or(|word| word.typed.text == word.wanted)
    }

    /// Takes a key; the answer, if it is one.
    pub fn key(&mut self, key: &str, now: Millis) -> Option<Choice> {
        let last = self.choices.len().saturating_sub(1);
        let choice = match key {
            "esc" => Choice::Cancel,
            "enter" => self.choices.get(self.focus)?.2,
            "tab" | "down" | "right" => {
                self.focus = if self.focus >= last { 0 } else { self.focus + 1 };
                return None;
            }
            "backtab" | "up" | "left" => {
                self.focus = if self.focus == 0 { last } else { self.focus - 1 };
                return None;
            }
            key => match &mut self.word {
                Some(word) => {
                    if matches!(word.typed.key(key), Typed::On) {
                        // Who has typed the name has chosen.
                        self.focus = if word.typed.text == word.wanted { last } else { 0 };
                    }
                    return None;
                }
                None if key == "q" => Choice::Cancel,
                None => self.choices.iter().find(|choice| choice.0 == key)?.2,
            },
        };
        Some(choice).filter(|choice| self.alive(*choice, now))
    }
}

/// What is lost when ranks end.
const LOST: &str = "lost     what the ranks have not saved by themselves";

/// Who runs where.
fn running(app: &App) -> String {
    let counts = app.state.rank_counts();
    let names: Vec<String> = app.state.hosts.iter().map(|host| app.clean(&host.name)).collect();
    let ranks = if app.offer.act { format!(", {}", count(counts.running, "running rank")) } else { String::new() };
    let text = format!("run      {}  {}{ranks}", app.clean(&app.state.info.name), count(names.len(), "host"));
    let names = fold(&names);
    if text.len() + names.len() + 2 <= WIDTH { format!("{text}  {names}") } else { text }
}

/// And whom an order does not reach.
fn unreached(app: &App, mut text: Vec<String>) -> Vec<String> {
    for (at, host) in (0_u32..).zip(&app.state.hosts) {
        if !matches!(host.liveness, Liveness::Retrying | Liveness::Unreachable) {
            continue;
        }
        let ranks = app.state.ranks.values().filter(|rank| rank.host == at && rank.exit.is_none() && rank.started.is_some()).count();
        text.push(format!("NOT REACHED  {}: {} may go on there", app.clean(&host.name), count(ranks, "rank")));
    }
    // A dialog is no list: of many hosts the first few.
    let head = text.iter().take_while(|line| !line.starts_with("NOT")).count();
    let more = text.len().saturating_sub(head + 4);
    if more > 0 {
        text.truncate(head + 4);
        text.push(format!("             and {more} more"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::feed::{Ask, Offer};
    use crate::tui::keymap::Cmd;
    use crate::tui::scenes;

    #[test]
    fn keys_give_the_answer_that_is_written_beside_them() {
        let mut dialog = Dialog::start("wan22", "4 hosts");
        assert_eq!(dialog.key("U", 0), Some(Choice::Start));
        assert_eq!(dialog.key("enter", 0), Some(Choice::Start));
        assert_eq!(dialog.key("x", 0), None);
        assert_eq!((dialog.key("tab", 0), dialog.key("enter", 0)), (None, Some(Choice::Cancel)));
        assert_eq!((dialog.key("backtab", 0), dialog.focus), (None, 1));
        assert_eq!(dialog.key("esc", 0), Some(Choice::Cancel));
    }

    /// For every question: the words of each answer against what comes of it.
    #[test]
    fn answers_do_what_they_say() {
        let ask = |cmd: Cmd, keys: &[&str]| {
            let mut scene = scenes::healthy();
            scene.app.update(cmd);
            scene.wait(DEAD);
            let Some(super::super::app::Overlay::Dialog(dialog)) = &scene.app.overlay else { panic!("{cmd:?} asks") };
            let words = dialog.choices.iter().map(|(_, label, _)| label.split([':', ' ', ',']).next().unwrap_or("").to_owned()).collect();
            keys.iter().for_each(|key| {
                scene.app.answer(key);
            });
            let words: Vec<String> = words;
            (words, scene.app.asks.clone())
        };
        let name = ["w", "a", "n", "2", "2"];
        assert_eq!(ask(Cmd::Halt, &["y"]), (vec!["No".into(), "Yes".into()], vec![Ask::Stop]));
        assert_eq!(ask(Cmd::Kill, &["y"]).1, vec![Ask::Kill]);
        assert_eq!(ask(Cmd::Restart, &["y"]).1, vec![Ask::Restart]);
        for cmd in [Cmd::Halt, Cmd::Kill, Cmd::Restart] {
            for keys in [&["n"][..], &["enter"], &["esc"], &["q"], &["x", "enter"]] {
                assert_eq!(ask(cmd, keys).1, vec![], "{cmd:?} {keys:?}");
            }
            assert_eq!(ask(cmd, &["tab", "enter"]).1.len(), 1, "one Tab to the other answer");
        }
        assert_eq!(ask(Cmd::TearDown, &[]).0, vec!["Cancel".to_owned(), "Tear".to_owned()]);
        assert_eq!(ask(Cmd::TearDown, &[&name[..], &["enter"]].concat()).1, vec![Ask::Teardown]);
        for keys in [&["enter"][..], &["tab", "enter"], &["w", "a", "n", "2", "enter"], &["y"], &name, &["esc"]] {
            assert_eq!(ask(Cmd::TearDown, keys).1, vec![], "{keys:?}");
        }
        assert_eq!(ask(Cmd::TearDown, &[&name[..], &["x", "backspace", "enter"]].concat()).1, vec![Ask::Teardown]);
        assert_eq!(ask(Cmd::TearDown, &[&name[..], &["3", "enter"]].concat()).1, vec![]);
        assert_eq!(ask(Cmd::Quit, &["enter"]), (vec!["Detach".into(), "Stop".into(), "Kill".into(), "Cancel".into()], vec![Ask::Detach]));
        assert_eq!((ask(Cmd::Quit, &["S"]).1, ask(Cmd::Quit, &["K"]).1), (vec![Ask::Stop], vec![Ask::Kill]));
    }

    #[test]
    fn what_destroys_is_dead_until_the_question_could_be_read() {
        let mut scene = scenes::healthy();
        let name = ["w", "a", "n", "2", "2", "enter"];
        for (cmd, keys) in [(Cmd::TearDown, &name[..]), (Cmd::Kill, &["y"]), (Cmd::Quit, &["K"])] {
            scene.app.update(cmd);
            keys.iter().for_each(|key| assert!(scene.app.answer(key)));
            scene.wait(DEAD - 1);
            scene.app.answer(keys[keys.len() - 1]);
            assert_eq!(scene.app.asks, vec![], "{cmd:?}");
            scene.wait(1);
            scene.app.answer(keys[keys.len() - 1]);
            assert_eq!(scene.app.asks.len(), 1, "{cmd:?}");
            scene.app.asks.clear();
        }
    }

    #[test]
    fn whom_an_order_does_not_reach_is_said() {
        let mut scene = scenes::bad_day();
        scene.app.update(Cmd::TearDown);
        let Some(super::super::app::Overlay::Dialog(dialog)) = &scene.app.overlay else { panic!("it asks") };
        assert!(dialog.text.contains(&"NOT REACHED  gpu09: 8 ranks may go on there".to_owned()), "{:?}", dialog.text);
        assert!(dialog.text.iter().any(|line| line.contains("gpu[00-15]")), "{:?}", dialog.text);
        assert!(dialog.text.iter().all(|line| line.len() <= WIDTH), "{:?}", dialog.text);
        assert_eq!(dialog.choices[dialog.focus].2, Choice::Cancel);
    }

    #[test]
    fn who_may_only_look_is_not_asked() {
        let mut scene = scenes::healthy();
        scene.app.only_look();
        for cmd in [Cmd::TearDown, Cmd::Kill, Cmd::Restart, Cmd::Halt] {
            scene.app.update(cmd);
            assert_eq!((&scene.app.overlay, &scene.app.asks), (&None, &vec![]), "{cmd:?}");
        }
        let choices = Dialog::quit(&scene.app).choices;
        assert!(choices.iter().all(|(.., choice)| !choice.destroys()), "{choices:?}");
        scene.app.hear(crate::tui::feed::Note::Offer(Offer { start: Some("new".to_owned()), ..Offer::of(Role::Onlooker) }));
        scene.app.update(Cmd::Start);
        assert_eq!(scene.app.overlay, None);
    }
}
