#![expect(clippy::disallowed_methods, reason = "signals are listened to in a task")]
//! The Ctrl-C ladder and the hang-up, as controls for the engine.

use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::cli::laptop::say;
use crate::cli::visit::Door;
use crate::event::Control;
use crate::tui::feed::{Ask, Role};

/// Who is asked to end: the launcher of the run, or one who merely looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Ctrl-C stops the run, then kills it, then leaves at once.
    Launcher,
    /// Ctrl-C detaches.
    Onlooker,
}

/// What signals turn into.
pub struct Signals {
    /// For the follower.
    pub controls: mpsc::Receiver<Control>,
    /// Cancelled by the first stop: no further step is begun.
    pub breaking: CancellationToken,
    /// Cancelled by the third: leave now.
    pub leave: CancellationToken,
    /// The signal that came first, if one came.
    pub first: std::sync::Arc<std::sync::atomic::AtomicI32>,
    /// Rings when the person at the dashboard asks for the start.
    pub go: std::sync::Arc<tokio::sync::Notify>,
    /// The way to the follower, for what is no signal; it does not keep the way open.
    pub orders: mpsc::WeakSender<Control>,
    // One ask for a key that a person presses: no host can fill it.
    asks: mpsc::UnboundedSender<Ask>,
    ladder: Arc<Ladder>,
    part: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

/// How often one was asked to end, and what is told at the first time.
#[derive(Default)]
struct Ladder {
    count: AtomicU32,
    by_key: AtomicBool,
    breaking: Mutex<CancellationToken>,
}

impl Ladder {
    fn break_off(&self) {
        self.breaking.lock().unwrap_or_else(PoisonError::into_inner).cancel();
    }
}

impl Signals {
    /// Listens from now on.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn listen(part: Part) -> std::io::Result<Signals> {
        use std::sync::atomic::Ordering::Relaxed;
        let (sender, controls) = mpsc::channel(16);
        let (asks, mut asked) = mpsc::unbounded_channel();
        let ladder = Arc::new(Ladder::default());
        let breaking = ladder.breaking.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let signals = Signals {
            controls,
            breaking,
            leave: CancellationToken::new(),
            first: std::sync::Arc::default(),
            go: std::sync::Arc::default(),
            orders: sender.downgrade(),
            asks,
            ladder,
            part: std::sync::Arc::new((part == Part::Launcher).into()),
        };
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let (ladder, leave, first, go, launcher) =
            (Arc::clone(&signals.ladder), signals.leave.clone(), signals.first.clone(), signals.go.clone(), signals.part.clone());
        tokio::spawn(async move {
            let came = |number: i32| {
                // The first one counts.
                first.compare_exchange(0, number, Relaxed, Relaxed).is_ok()
            };
            loop {
                let (number, name) = tokio::select! {
                    _ = interrupt.recv() => (2, "Ctrl-C"),
                    _ = terminate.recv() => (15, "SIGTERM"),
                    _ = hangup.recv() => (1, "SIGHUP"),
                    Some(ask) = asked.recv() => match ask {
                        Ask::Interrupt => (2, "Ctrl-C"),
                        Ask::Hangup => (1, "SIGHUP"),
                        Ask::Start => {
                            go.notify_one();
                            continue;
                        }
                        Ask::LeaveNow | Ask::Broken => {
                            came(2);
                            leave.cancel();
                            return;
                        }
                        other => {
                            let why = "asked for on the dashboard".to_owned();
                            let control = match other {
                                Ask::Stop => Control::Stop { why },
                                Ask::Kill => Control::Kill { why },
                                Ask::Teardown => Control::Teardown,
                                Ask::Restart => Control::Restart,
                                _ => Control::Detach,
                            };
                            if matches!(control, Control::Stop { .. } | Control::Kill { .. }) {
                                came(2);
                                ladder.by_key.store(true, Relaxed);
                                ladder.break_off();
                                ladder.count.fetch_max(1, Relaxed);
                            }
                            if sender.send(control).await.is_err() {
                                return;
                            }
                            continue;
                        }
                    },
                };
                came(number);
                let count = ladder.count.load(Relaxed);
                let control = if number == 1 || !launcher.load(Relaxed) {
                    if count > 0 {
                        leave.cancel();
                    }
                    Control::Detach
                } else if count == 0 {
                    say(&format!("{name}: stopping the ranks; once more kills them"));
                    ladder.break_off();
                    Control::Stop { why: name.to_owned() }
                } else if count == 1 {
                    say(&format!("{name}: killing the ranks; once more leaves at once"));
                    Control::Kill { why: format!("second {name}") }
                } else {
                    leave.cancel();
                    return;
                };
                if number != 1 || !launcher.load(Relaxed) {
                    ladder.count.fetch_add(1, Relaxed);
                }
                if sender.send(control).await.is_err() {
                    return;
                }
            }
        });
        Ok(signals)
    }

    /// Whether the stop was asked for by a key of the dashboard, and not by a signal.
    pub fn by_key(&self) -> bool {
        self.ladder.by_key.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Forgets what was asked: another launch begins.
    pub fn anew(&mut self) {
        let fresh = CancellationToken::new();
        *self.ladder.breaking.lock().unwrap_or_else(PoisonError::into_inner) = fresh.clone();
        self.breaking = fresh;
        self.ladder.by_key.store(false, std::sync::atomic::Ordering::Relaxed);
        self.ladder.count.store(0, std::sync::atomic::Ordering::Relaxed);
        self.first.store(0, std::sync::atomic::Ordering::Relaxed);
    }

    /// Obeys the person at the dashboard besides. What only looks goes to the hosts at once.
    pub fn obey(&self, mut asks: mpsc::UnboundedReceiver<Ask>, door: Door) {
        let ours = self.asks.clone();
        tokio::spawn(async move {
            while let Some(ask) = asks.recv().await {
                let door = door.clone();
                match ask {
                    Ask::Look(host) => drop(tokio::spawn(async move { door.engine().look(host).await })),
                    Ask::Shell(host, rank) => drop(tokio::spawn(async move { door.visit(host, rank).await })),
                    other if ours.send(other).is_err() => return,
                    _ => {}
                }
            }
        });
    }

    /// What the dashboard may offer to this one.
    pub fn role(&self) -> Role {
        if self.part.load(std::sync::atomic::Ordering::Relaxed) { Role::Launcher } else { Role::Onlooker }
    }

    /// From now on this one merely looks, or launches.
    pub fn become_part(&self, part: Part) {
        self.part.store(part == Part::Launcher, std::sync::atomic::Ordering::Relaxed);
    }

    /// The signal that came first.
    pub fn came(&self) -> Option<i32> {
        Some(self.first.load(std::sync::atomic::Ordering::Relaxed)).filter(|n| *n != 0)
    }
}
