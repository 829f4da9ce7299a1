#![expect(clippy::disallowed_methods, reason = "a journal is played by the clock")]
//! `replay`: plays the journal of a past run to the dashboard, at the pace that the person asks for.

use std::time::{Duration, Instant};

use crate::cli::args::ReplayArgs;
use crate::cli::desk::{Copies, chain};
use crate::cli::exit::Failure;
use crate::cli::hand::Keeper;
use crate::cli::laptop::{Laptop, colored, columns, say, settings};
use crate::cli::signals::{Part, Signals};
use crate::event::{Event, Millis, Outcome};
use crate::report::journal::JOURNAL;
use crate::report::past::{self, Past, Recaller};
use crate::report::runs::{RunDir, list, open_logs};
use crate::report::sanitize::Cleaner;
use crate::report::words::Style;
use crate::report::{Sink as _, recap};
use crate::state::RunState;
use crate::tui::feed::{Ask, Mouth, Note, Offer, Pace, Role};

/// The slowest and the fastest that a journal is played.
pub(crate) const SPEEDS: (f64, f64) = (0.25, 1024.0);
/// What has come due is told no more often than this.
const TICK: Duration = Duration::from_millis(100);

/// Runs it.
///
/// # Errors
/// What must be said to the person.
pub async fn run(args: &ReplayArgs) -> Result<Outcome, Failure> {
    let laptop = Laptop::read()?;
    let dir = find(&laptop, &args.run)?;
    let Past { events, trouble } = read(&dir)?;
    let look = settings(&args.board, args.color, Vec::new())?;
    let mut signals = Signals::listen(Part::Onlooker).map_err(anyhow::Error::from)?;
    let open = crate::tui::open(Role::Replay, Cleaner::default(), look);
    let open = open.map_err(|e| Failure::Usage(format!("the dashboard could not take the terminal: {e}")))?;
    let (mouth, mut asks, ended) = (open.mouth, open.asks, open.ended);
    let mut player = Player::new(&events, Recaller::new(open_logs(dir.path()).ok()), mouth, args.speed);
    player.mouth.tell(Note::Offer(Offer::of(Role::Replay)));
    player.mouth.tell(Note::Stored(Box::new(Copies(dir.path().to_owned()))));
    player.mouth.tell(Note::Hand(Box::new(Keeper::new(&laptop))));
    player.mouth.tell(Note::Zone(jiff::Zoned::now().offset().seconds().into()));
    if !trouble.is_empty() {
        player.mouth.tell(Note::Say(trouble.clone()));
    }
    let mut last = Instant::now();
    loop {
        let ask = tokio::select! {
            ask = asks.recv() => match ask {
                Some(ask) => Some(ask),
                None => break,
            },
            _ = signals.controls.recv() => break,
            () = signals.leave.cancelled() => break,
            () = pass(player.due()) => None,
        };
        player.advance(last.elapsed());
        last = Instant::now();
        if ask.is_some_and(|ask| !player.obey(ask)) {
            break;
        }
    }
    let mut state = RunState::new();
    player.mouth.finish(&state).map_err(anyhow::Error::from)?;
    if tokio::time::timeout(Duration::from_secs(5), ended).await.is_err() {
        tracing::debug!("the dashboard did not end");
    }
    if !trouble.is_empty() {
        say(&trouble);
    }
    events.iter().for_each(|event| state.apply(event));
    let logs = Some(dir.logs().display().to_string());
    let style = Style { color: colored(args.color) };
    let context = recap::Context { style, logs, lines: 20, columns: columns(), ..recap::Context::default() };
    // A recap ends with commands to go on with; here there is nothing to go on with.
    let onward = |line: &&String| ["  next ", "  end it "].iter().any(|label| line.starts_with(label));
    recap::recap(&state, &context).iter().filter(|line| !onward(line)).for_each(|line| say(line));
    Ok(Outcome::Ok)
}

/// Waits so long; without an end where nothing will come due.
async fn pass(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

/// How long until there is something to tell: the next event, or a second more on the clock. Nothing comes due while it is paused, so that a
/// screen on which nothing changes costs nothing.
fn due(pace: Pace, now: Millis, rest: f64, next: Option<Millis>) -> Option<Duration> {
    if pace.paused {
        return None;
    }
    let second = (now.div_euclid(1000) + 1) * 1000;
    let left = next.map_or(second, |next| next.min(second)).min(pace.to) - now;
    // At most a second.
    #[expect(clippy::cast_precision_loss, reason = "at most a second of milliseconds")]
    let seconds = (left as f64 - rest) / 1000.0 / pace.speed;
    Some(Duration::try_from_secs_f64(seconds).unwrap_or(TICK).max(TICK))
}

/// The folder of the run that is named, or that alone begins so.
fn find(laptop: &Laptop, name: &str) -> Result<RunDir, Failure> {
    let cannot = |e: std::io::Error| Failure::Usage(format!("{}: {e}", laptop.state.display()));
    let runs: Vec<String> = list(&laptop.state).map_err(cannot)?.into_iter().map(|run| run.run).collect();
    let begin: Vec<&String> = runs.iter().filter(|run| run.starts_with(name)).collect();
    let run = match (runs.iter().find(|run| *run == name), &begin[..]) {
        (Some(run), _) => run,
        (None, [one]) => one,
        (None, []) => return Err(Failure::Usage(format!("{name}: no such run on this laptop\n    help: `orchestrate runs` lists them"))),
        (None, several) => {
            let all: Vec<&str> = several.iter().map(|run| run.as_str()).collect();
            return Err(Failure::Usage(format!("{name}: several runs begin so: {}", all.join(" "))));
        }
    };
    RunDir::open(&laptop.state, run).map_err(cannot)
}

/// The events of the run, and what could not be read.
fn read(dir: &RunDir) -> Result<Past, Failure> {
    let past = past::read(dir.path()).map_err(|e| Failure::Usage(chain(&e)))?;
    if past.events.is_empty() {
        let path = dir.path().join(JOURNAL);
        return Err(Failure::Usage(format!("{}: nothing happened in it{}", path.display(), past.trouble)));
    }
    Ok(past)
}

/// A journal on its way to the dashboard.
struct Player<'a> {
    events: &'a [Event],
    logs: Recaller,
    next: usize,
    now: Millis,
    pace: Pace,
    mouth: Mouth,
    /// Milliseconds that were too few to count.
    rest: f64,
}

impl<'a> Player<'a> {
    fn new(events: &'a [Event], logs: Recaller, mouth: Mouth, speed: f64) -> Self {
        let from = events.first().map_or(0, |event| event.at);
        let to = events.last().map_or(0, |event| event.at);
        let player = Player { events, logs, next: 0, now: from, pace: Pace { paused: false, speed, from, to }, mouth, rest: 0.0 };
        player.tell_pace();
        player
    }

    fn tell_pace(&self) {
        self.mouth.tell(Note::Pace(self.pace));
    }

    /// As the run told it: with the text of its logs.
    fn tell(&mut self, event: &Event) {
        for event in self.logs.recall(event) {
            self.mouth.tell(Note::Event(event));
        }
    }

    /// See [`due`].
    fn due(&self) -> Option<Duration> {
        due(self.pace, self.now, self.rest, self.events.get(self.next).map(|event| event.at))
    }

    /// Time goes by.
    fn advance(&mut self, by: Duration) {
        if self.pace.paused {
            return;
        }
        self.rest += by.as_secs_f64() * 1000.0 * self.pace.speed;
        // Less than a day of milliseconds.
        #[expect(clippy::cast_possible_truncation, reason = "whole milliseconds are meant")]
        let whole = self.rest as Millis;
        #[expect(clippy::cast_precision_loss, reason = "less than a day of milliseconds")]
        let counted = whole as f64;
        self.rest -= counted;
        self.go_to(self.now + whole);
        if self.now >= self.pace.to {
            self.pace.paused = true;
            self.tell_pace();
        }
    }

    /// Tells all that happened until then.
    fn go_to(&mut self, to: Millis) {
        self.now = to.min(self.pace.to);
        while let Some(event) = self.events.get(self.next).filter(|event| event.at <= self.now) {
            self.tell(event);
            self.next += 1;
        }
        self.mouth.tell(Note::Now(self.now));
    }

    /// Does what the person asks; `false`: they leave.
    fn obey(&mut self, ask: Ask) -> bool {
        match ask {
            Ask::Pause if self.now >= self.pace.to => {
                self.seek(self.pace.from);
                self.pace.paused = false;
            }
            Ask::Pause => self.pace.paused = !self.pace.paused,
            Ask::Step => {
                self.pace.paused = true;
                if let Some(event) = self.events.get(self.next) {
                    self.tell(event);
                    self.now = event.at;
                    self.next += 1;
                    self.mouth.tell(Note::Now(self.now));
                }
            }
            Ask::Speed(times) => self.pace.speed = (self.pace.speed * times).clamp(SPEEDS.0, SPEEDS.1),
            Ask::Seek(by) => self.seek((self.now + by).clamp(self.pace.from, self.pace.to)),
            Ask::Detach | Ask::Interrupt | Ask::Hangup | Ask::LeaveNow | Ask::Broken => return false,
            // There is no run to ask it of.
            Ask::Start | Ask::Stop | Ask::Kill | Ask::Teardown | Ask::Restart | Ask::Look(_) | Ask::Shell(..) => {}
        }
        self.tell_pace();
        true
    }

    fn seek(&mut self, to: Millis) {
        if to < self.now {
            self.mouth.tell(Note::Anew);
            self.logs.begin_again();
            self.next = 0;
        }
        self.rest = 0.0;
        self.go_to(to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_pressed_quickly_counts_every_time() {
        let (mouth, _ear) = crate::tui::feed::feed().expect("a feed");
        let mut player = Player::new(&[], Recaller::new(None), mouth, 1.0);
        [2.0, 2.0, 2.0, 0.5].into_iter().for_each(|times| assert!(player.obey(Ask::Speed(times))));
        assert!((player.pace.speed - 4.0).abs() < f64::EPSILON, "{}", player.pace.speed);
        (0..20).for_each(|_| assert!(player.obey(Ask::Speed(0.5))));
        assert!((player.pace.speed - SPEEDS.0).abs() < f64::EPSILON, "{}", player.pace.speed);
    }

    #[test]
    fn the_player_sleeps_until_something_comes_due() {
        let pace = Pace { paused: false, speed: 1.0, from: 0, to: 60_000 };
        let ms = |n| Some(Duration::from_millis(n));
        assert_eq!(due(pace, 2_000, 0.0, None), ms(1_000), "a second more on the clock");
        assert_eq!(due(pace, 2_300, 0.0, Some(2_500)), ms(200));
        assert_eq!(due(pace, 2_300, 0.0, Some(2_301)), ms(100), "what comes together is told together");
        assert_eq!(due(pace, 59_900, 0.0, Some(90_000)), ms(100));
        assert_eq!(due(Pace { speed: 0.5, ..pace }, 2_000, 0.0, None), ms(2_000));
        assert_eq!(due(Pace { speed: 1000.0, ..pace }, 2_000, 0.0, None), ms(100));
        assert_eq!(due(Pace { paused: true, ..pace }, 2_000, 0.0, Some(2_001)), None);
    }
}
