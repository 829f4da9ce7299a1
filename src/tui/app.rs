//! What the dashboard knows: the fold of its feed, and what the person at it looks at. Notes and commands change it, panes draw it.
//!
//! Uses `event`, `state`, `diagnose`, `report` and the panes' own states. Reads no clock; `now` comes from the feed.

use crate::diagnose::{Evidence, Lang};
use crate::event::{Event, EventKind, Millis, Phase};
use crate::report::sanitize::Cleaner;
use crate::state::{RunState, Status as StepStatus};

use super::bindings::Bindings;
use super::dialog::{Choice, Dialog};
use super::feed::{Ask, Hand, Note, Offer, Pace, Role, Stored};
use super::keymap::{Cmd, Place};
use super::palette::{Chosen, Palette};
use super::prompt::{Prompt, Typed};
use super::ring::Ring;
use super::settings::{Mouse, Settings};
use super::theme::Theme;
use super::timeline::Timeline;
use super::times::Times;
use super::view::{self, events, gpus, host, logs, overview, problems, ranks, sum};

/// How long a line for the person stays.
const TOAST: i64 = 5_000;
/// A screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Screen {
    /// Hosts, the worst first; during a launch the matrix of hosts and phases.
    Overview,
    /// One host.
    Host,
    /// Every rank.
    Ranks,
    /// The log of one rank or launcher.
    Logs,
    /// Every GPU.
    Gpus,
    /// What happened.
    Events,
    /// What is wrong.
    Problems,
}

impl Screen {
    /// All, in the order of their keys.
    pub const ALL: [Screen; 7] =
        [Screen::Overview, Screen::Host, Screen::Ranks, Screen::Logs, Screen::Gpus, Screen::Events, Screen::Problems];

    /// Its key and name.
    pub fn title(self) -> (&'static str, &'static str) {
        match self {
            Screen::Overview => ("1", "Overview"),
            Screen::Host => ("2", "Host"),
            Screen::Ranks => ("3", "Ranks"),
            Screen::Logs => ("4", "Logs"),
            Screen::Gpus => ("5", "GPUs"),
            Screen::Events => ("6", "Events"),
            Screen::Problems => ("7", "Problems"),
        }
    }
}

/// What lies on top of the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Overlay {
    /// The keys; scrolled by so many rows.
    Help(usize),
    /// A question.
    Dialog(Dialog),
    /// What to look for in the logs.
    Find(Prompt),
    /// A command being chosen.
    Palette(Palette),
    /// Which of their lines to show.
    Filter(Prompt),
}

/// What must be drawn anew, the least urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dirt {
    /// Nothing.
    None,
    /// The clock or a sample.
    Sample,
    /// Something happened.
    News,
    /// The person pressed a key.
    Key,
}

/// All that a pane may look at.
pub struct App {
    /// What is known of the run.
    pub state: RunState,
    /// What explains its failures.
    pub evidence: Evidence,
    /// The language of what is said of failures.
    pub lang: Lang,
    /// The time of the feed.
    pub now: Millis,
    /// What can be asked for.
    pub offer: Offer,
    /// Where a journal that is played stands.
    pub pace: Option<Pace>,
    /// What makes remote text safe.
    pub cleaner: Cleaner,
    /// Colours and symbols.
    pub theme: Theme,
    /// Which keys count.
    pub bindings: Bindings,
    /// When the mouse is ours.
    pub mouse: Mouse,
    /// Nothing may be changed from here.
    pub readonly: bool,
    /// The screen is kept as it is since then.
    pub frozen: Option<Millis>,
    /// Where log text is.
    pub stored: Option<Box<dyn Stored>>,
    /// Who takes copies of text.
    pub hand: Option<Box<dyn Hand>>,
    /// Text on its way to the terminal's clipboard.
    pub clip: Option<String>,
    /// The newest lines of all logs.
    pub ring: Ring,
    /// When which part of a log came.
    pub times: Times,
    /// What happened.
    pub timeline: Timeline,
    /// Seconds that the person's clock is ahead of UTC.
    pub zone: i64,
    /// Log bytes that were not shown, since the screen was slower.
    pub skipped: u64,
    /// How every host stood when the last frame was begun.
    pub standings: Vec<sum::Standing>,
    /// Which screen.
    pub screen: Screen,
    /// What lies on top.
    pub overlay: Option<Overlay>,
    /// A line for the person, and until when.
    pub toast: Option<(String, Millis)>,
    /// The overview's own.
    pub overview: overview::View,
    /// The host's own.
    pub host: host::View,
    /// The ranks' own.
    pub ranks: ranks::View,
    /// The logs' own.
    pub logs: logs::View,
    /// The GPUs' own.
    pub gpus: gpus::View,
    /// The events' own.
    pub events: events::View,
    /// The problems' own.
    pub problems: problems::View,
    /// A page of the pane that is shown, in rows; as it was drawn last.
    pub page: usize,
    /// Asked for by keys, not yet sent.
    pub asks: Vec<Ask>,
    /// Suspend after this round.
    pub suspend: bool,
    /// Draw every cell.
    pub redraw: bool,
}

impl App {
    /// Nothing is known yet.
    pub fn new(role: Role, cleaner: Cleaner, theme: Theme) -> Self {
        App {
            state: RunState::new(),
            now: 0,
            offer: Offer::of(role),
            pace: None,
            cleaner,
            theme,
            bindings: Bindings::default(),
            mouse: Mouse::Auto,
            readonly: false,
            frozen: None,
            stored: None,
            evidence: Evidence::built_in(),
            lang: Lang::default(),
            hand: None,
            clip: None,
            ring: Ring::default(),
            times: Times::default(),
            timeline: Timeline::default(),
            zone: 0,
            skipped: 0,
            standings: Vec::new(),
            screen: Screen::Overview,
            overlay: None,
            toast: None,
            overview: overview::View::default(),
            host: host::View::default(),
            ranks: ranks::View::default(),
            logs: logs::View::default(),
            gpus: gpus::View::default(),
            events: events::View::default(),
            problems: problems::View::default(),
            page: 10,
            asks: Vec::new(),
            suspend: false,
            redraw: false,
        }
    }

    /// Takes what the person has set.
    pub fn set(&mut self, settings: Settings) {
        (self.theme, self.mouse, self.bindings) = (settings.theme, settings.mouse, settings.bindings);
        if settings.readonly {
            self.only_look();
        }
    }

    /// From now on nothing can be changed from here.
    pub fn only_look(&mut self) {
        self.readonly = true;
        self.bindings.only_look();
    }

    /// Takes one thing that was told; what it makes dirty.
    pub fn hear(&mut self, note: Note) -> Dirt {
        match note {
            Note::Event(event) => return self.event(&event),
            Note::Now(now) => {
                let second = now / 1000 != self.now / 1000;
                self.clock(now);
                let over = self.toast.take_if(|(_, until)| *until <= now).is_some();
                let waits = matches!(self.overlay, Some(Overlay::Dialog(_)));
                if self.screen == Screen::Logs && logs::work(self) {
                    return Dirt::News;
                }
                return if waits {
                    Dirt::News
                } else if second || over {
                    Dirt::Sample
                } else {
                    Dirt::None
                };
            }
            Note::Explain(evidence, lang) => (self.evidence, self.lang) = (*evidence, lang),
            Note::Stored(stored) => self.stored = Some(stored),
            Note::Hand(hand) => self.hand = Some(hand),
            Note::Offer(offer) => {
                if matches!(self.overlay, Some(Overlay::Dialog(_))) && self.offer != offer {
                    // What was asked is no longer the question.
                    self.overlay = None;
                }
                self.offer = offer;
            }
            Note::Pace(pace) => self.pace = Some(pace),
            Note::Anew => {
                self.state = RunState::new();
                self.evidence.clear();
                self.times.clear();
                self.ring = Ring::default();
                self.logs.anew();
                self.timeline = Timeline::default();
                self.now = 0;
            }
            Note::Say(text) => self.say(&text),
            #[cfg(debug_assertions)]
            #[expect(clippy::panic, reason = "that is what is rehearsed")]
            Note::Break => panic!("rehearsed in the screen"),
            Note::Zone(zone) => self.zone = zone,
        }
        Dirt::News
    }

    fn event(&mut self, event: &Event) -> Dirt {
        self.state.apply(event);
        self.evidence.apply(event);
        self.clock(event.at);
        self.timeline.take(event, &self.state);
        if let EventKind::Log { host, file, offset, bytes, len } = &event.kind {
            self.times.grew((*host, *file), *offset, event.at);
            self.ring.take((*host, *file), *offset, bytes, *len, event.at);
        }
        if let EventKind::LogShrunk { host, file, .. } = event.kind {
            self.times.begin_again((host, file));
            self.ring.begin_again((host, file));
            self.logs.anew();
        }
        if event.kind.is_sample() { Dirt::Sample } else { Dirt::News }
    }

    fn clock(&mut self, now: Millis) {
        // What was said before any time was known begins now.
        if self.now == 0
            && let Some((_, until)) = &mut self.toast
        {
            *until += now;
        }
        self.now = self.now.max(now);
    }

    /// Shows a line for a moment.
    pub fn say(&mut self, text: &str) {
        self.toast = Some((self.cleaner.line(text), self.now + TOAST));
    }

    /// Remote text, safe and on one line.
    pub fn clean(&self, text: &str) -> String {
        self.cleaner.line(text).replace('\t', "    ")
    }

    /// The time of day on the person's clock.
    pub fn time(&self, at: Millis) -> String {
        super::view::time_of_day(at, self.zone)
    }

    /// Whether a value of then is too old to be believed now: three rounds of the sampler, or of what a journal keeps of it. What was last
    /// seen of a run that is over stays.
    pub fn stale(&self, at: Millis) -> bool {
        let limit = if self.offer.role == Role::Replay { 30_000 } else { 6_000 };
        at > 0 && self.now - at > limit && self.state.outcome.is_none()
    }

    /// Whether a value of then is older than that, while the run goes on.
    pub fn stale_for(&self, at: Millis, limit: i64) -> bool {
        self.now - at > limit && self.state.outcome.is_none()
    }

    /// Whether steps of a plan wait or run: then their matrix is the overview.
    pub fn stepping(&self) -> bool {
        let open = |status: StepStatus| matches!(status, StepStatus::Waiting | StepStatus::Running);
        self.state.outcome.is_none() && self.state.ledger.steps().iter().any(|step| open(step.status))
            || self.offer.start.is_some() && !self.state.ledger.steps().is_empty()
    }

    /// The places whose keys count now, the nearest first.
    pub fn places(&self) -> Vec<Place> {
        let mut places = Vec::new();
        if self.offer.start.is_some() {
            places.push(Place::Plan);
        }
        // Both the journal and the events have steps: those of the screen win.
        if self.screen == Screen::Events {
            places.push(Place::Events);
        }
        if self.offer.role == Role::Replay {
            places.push(Place::Replay);
        }
        let own = match self.screen {
            Screen::Overview => Place::Overview,
            Screen::Host => Place::Host,
            Screen::Ranks => Place::Ranks,
            Screen::Logs => Place::Logs,
            Screen::Gpus => Place::Gpus,
            Screen::Events => Place::Events,
            Screen::Problems => Place::Problems,
        };
        if !places.contains(&own) {
            places.push(own);
        }
        if self.offer.act || self.offer.clear {
            places.push(Place::Run);
        }
        places.push(Place::All);
        places
    }

    /// Obeys a command.
    pub fn update(&mut self, cmd: Cmd) {
        match (&mut self.overlay, cmd) {
            (_, Cmd::Interrupt) => self.interrupt(),
            (_, Cmd::Redraw) => self.redraw = true,
            (_, Cmd::Suspend) => self.suspend = true,
            (Some(Overlay::Help(top)), _) => {
                let page = self.page.max(1);
                match cmd {
                    Cmd::Up => *top = top.saturating_sub(1),
                    Cmd::Down => *top += 1,
                    Cmd::PageUp | Cmd::HalfUp => *top = top.saturating_sub(page),
                    Cmd::PageDown | Cmd::HalfDown => *top += page,
                    Cmd::Top => *top = 0,
                    Cmd::Bottom => *top = usize::MAX / 2,
                    Cmd::Help | Cmd::Back | Cmd::Quit => self.overlay = None,
                    _ => {}
                }
            }
            (Some(Overlay::Dialog(_) | Overlay::Find(_) | Overlay::Filter(_) | Overlay::Palette(_)), _) => {}
            (None, _) => self.command(cmd),
        }
    }

    fn command(&mut self, cmd: Cmd) {
        match cmd {
            Cmd::Help => self.overlay = Some(Overlay::Help(0)),
            Cmd::Overview => self.screen = Screen::Overview,
            Cmd::Host => self.screen = Screen::Host,
            Cmd::Ranks => self.screen = Screen::Ranks,
            Cmd::Logs => self.screen = Screen::Logs,
            Cmd::Gpus => self.screen = Screen::Gpus,
            Cmd::Events => self.screen = Screen::Events,
            Cmd::Problems => self.screen = Screen::Problems,
            Cmd::Find => self.overlay = Some(Overlay::Find(Prompt::default())),
            Cmd::Filter => self.overlay = Some(Overlay::Filter(Prompt { text: self.logs.filter_text() })),
            Cmd::NextError | Cmd::PrevError if self.screen != Screen::Logs => problems::next(self, cmd == Cmd::NextError),
            Cmd::NextScreen | Cmd::PrevScreen => self.turn(if cmd == Cmd::NextScreen { 1 } else { Screen::ALL.len() - 1 }),
            Cmd::Back => self.screen = Screen::Overview,
            Cmd::Quit if self.screen != Screen::Overview => self.screen = Screen::Overview,
            Cmd::Quit => self.quit(),
            Cmd::Palette => self.overlay = Some(Overlay::Palette(Palette::default())),
            Cmd::Freeze => self.frozen = if self.frozen.is_some() { None } else { Some(self.now) },
            Cmd::Theme => {
                self.theme.skin = self.theme.skin.next();
                self.redraw = true;
                self.say(&format!("colours: {}", self.theme.skin.name()));
            }
            Cmd::Mouse => {
                self.mouse = self.mouse.next();
                self.say(match self.mouse {
                    Mouse::Auto => "mouse: auto; in logs text is marked with the terminal's own means",
                    Mouse::On => "mouse: on; with Shift most terminals mark text by their own means",
                    Mouse::Off => "mouse: off; clicks and wheel are the terminal's",
                });
            }
            _ if cmd.changes() => self.act(cmd),
            Cmd::DetachNow => self.asks.push(Ask::Detach),
            Cmd::Pause => self.asks.push(Ask::Pause),
            Cmd::Step => self.asks.push(Ask::Step),
            Cmd::Faster | Cmd::Slower => {
                self.asks.push(Ask::Speed(if cmd == Cmd::Faster { 2.0 } else { 0.5 }));
            }
            Cmd::Earlier | Cmd::Later => {
                if let Some(pace) = self.pace {
                    let part = ((pace.to - pace.from) / 20).max(1000);
                    self.asks.push(Ask::Seek(if cmd == Cmd::Later { part } else { -part }));
                }
            }
            _ => match self.screen {
                Screen::Overview => overview::update(self, cmd),
                Screen::Host => host::update(self, cmd),
                Screen::Ranks => ranks::update(self, cmd),
                Screen::Logs => logs::update(self, cmd),
                Screen::Gpus => gpus::update(self, cmd),
                Screen::Events => events::update(self, cmd),
                Screen::Problems => problems::update(self, cmd),
            },
        }
    }

    /// Whether keys answer a question or are typed into a line now.
    pub fn asking(&self) -> bool {
        matches!(self.overlay, Some(Overlay::Dialog(_) | Overlay::Find(_) | Overlay::Filter(_) | Overlay::Palette(_)))
    }

    /// A click; whether there was something.
    pub fn click(&mut self, x: u16, y: u16, twice: bool) -> bool {
        if self.overlay.is_some() || !view::touch(self, x, y) {
            return false;
        }
        if twice && y > 1 {
            self.command(Cmd::Open);
        }
        true
    }

    /// Whether clicks and the wheel should come here.
    pub fn wants_mouse(&self) -> bool {
        match self.mouse {
            Mouse::Auto => self.screen != Screen::Logs,
            Mouse::On => true,
            Mouse::Off => false,
        }
    }

    fn turn(&mut self, by: usize) {
        let at = Screen::ALL.iter().position(|screen| *screen == self.screen).unwrap_or(0);
        self.screen = Screen::ALL[(at + by) % Screen::ALL.len()];
    }

    fn quit(&mut self) {
        let harmless = self.offer.role == Role::Replay || self.offer.start.is_some() || self.state.outcome.is_some();
        // One who merely looks and has nothing to look at yet.
        let early = self.offer.role == Role::Onlooker && !self.offer.act && self.state.ledger.steps().is_empty();
        if harmless || early {
            self.asks.push(Ask::Detach);
        } else {
            self.overlay = Some(Overlay::Dialog(Dialog::quit(self)));
        }
    }

    fn interrupt(&mut self) {
        self.overlay = None;
        self.asks.push(Ask::Interrupt);
        if self.offer.role == Role::Launcher && self.offer.start.is_none() {
            self.say(match self.state.stopping {
                None => "Ctrl-C: stopping the ranks; once more kills them",
                Some(_) => "Ctrl-C: killing the ranks; once more leaves at once",
            });
        }
    }

    /// Text that was pasted: taken where one types, and nowhere else.
    pub fn paste(&mut self, text: &str) {
        match &mut self.overlay {
            Some(Overlay::Find(prompt) | Overlay::Filter(prompt)) => prompt.paste(text),
            Some(Overlay::Palette(palette)) => palette.prompt.paste(text),
            // A name that is pasted was not typed.
            Some(Overlay::Dialog(_) | Overlay::Help(_)) | None => {}
        }
    }

    /// A key for the question or prompt on top; `false`: there is none.
    pub fn answer(&mut self, key: &str) -> bool {
        let filters = matches!(self.overlay, Some(Overlay::Filter(_)));
        if let Some(Overlay::Find(prompt) | Overlay::Filter(prompt)) = &mut self.overlay {
            match prompt.key(key) {
                Typed::On => {}
                Typed::Off => self.overlay = None,
                Typed::Done => {
                    let text = std::mem::take(&mut prompt.text);
                    self.overlay = None;
                    match self.screen {
                        _ if filters => logs::filter(self, &text),
                        Screen::Gpus => gpus::look_for(self, &text),
                        _ => logs::look_for(self, &text),
                    }
                }
            }
            return true;
        }
        let places = self.places();
        if let Some(Overlay::Palette(palette)) = &mut self.overlay {
            match palette.key(key, &self.bindings, &places) {
                Chosen::Open => {}
                Chosen::Nothing => self.overlay = None,
                Chosen::This(cmd) => {
                    self.overlay = None;
                    self.update(cmd);
                }
            }
            return true;
        }
        let Some(Overlay::Dialog(dialog)) = &mut self.overlay else { return false };
        let Some(choice) = dialog.key(key, self.now) else { return true };
        self.overlay = None;
        match choice {
            Choice::Cancel => {}
            Choice::Start => self.asks.push(Ask::Start),
            Choice::Detach => {
                if !self.offer.act {
                    self.say("leaving once every rank has been started; the run goes on");
                }
                self.asks.push(Ask::Detach);
            }
            Choice::Stop => self.asks.push(Ask::Stop),
            Choice::Kill => self.asks.push(Ask::Kill),
            Choice::Restart => self.asks.push(Ask::Restart),
            Choice::TearDown => {
                self.asks.push(Ask::Teardown);
                self.screen = Screen::Overview;
            }
            Choice::Leave => self.asks.push(Ask::LeaveNow),
        }
        true
    }

    /// Whether a teardown is under way.
    pub fn tearing_down(&self) -> bool {
        let back = |phase: Phase| matches!(phase, Phase::Stop | Phase::Remove | Phase::Fetch | Phase::Clean | Phase::Verify);
        self.state.ledger.steps().iter().any(|step| back(step.info.phase)) && self.stepping()
    }
}
