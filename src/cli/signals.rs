#![expect(clippy::disallowed_methods, reason = "signals are listened to in a task")]
//! The Ctrl-C ladder and the hang-up, as controls for the engine.

use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::cli::local_env::print_stderr;
use crate::event::RunControl;
use crate::tui::feed::{DashboardRole, UserAction};

/// Who is asked to end: the launcher of the run, or one who merely looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterruptPolicy {
    /// Ctrl-C stops the run, then kills it, then leaves at once.
    Stop,
    /// Ctrl-C detaches.
    Detach,
}

/// What signals turn into.
pub struct StopController {
    /// For the follower.
    pub controls: mpsc::Receiver<RunControl>,
    /// Cancelled by the first stop: no further step is begun.
    pub stop_token: CancellationToken,
    /// Cancelled by the third: leave now.
    pub leave_token: CancellationToken,
    /// The signal that came first, if one came.
    pub first_signal: std::sync::Arc<std::sync::atomic::AtomicI32>,
    /// Rings when the person at the dashboard asks for the start.
    pub start_requested: std::sync::Arc<tokio::sync::Notify>,
    /// The way to the follower, for what is no signal; it does not keep the way open.
    pub control_sender: mpsc::WeakSender<RunControl>,
    // One ask for a key that a person presses: no host can fill it.
    user_actions: mpsc::UnboundedSender<UserAction>,
    escalation: Arc<StopEscalation>,
    stops_on_interrupt: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

/// How often one was asked to end, and what is told at the first time.
#[derive(Default)]
struct StopEscalation {
    interrupt_count: AtomicU32,
    by_key: AtomicBool,
    stop_token: Mutex<CancellationToken>,
}

impl StopEscalation {
    fn cancel_steps(&self) {
        self.stop_token.lock().unwrap_or_else(PoisonError::into_inner).cancel();
    }
}

impl StopController {
    /// Listens from now on.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn listen(part: InterruptPolicy) -> std::io::Result<StopController> {
        use std::sync::atomic::Ordering::Relaxed;
        let (sender, controls) = mpsc::channel(16);
        let (asks, mut asked) = mpsc::unbounded_channel();
        let ladder = Arc::new(StopEscalation::default());
        let breaking = ladder.stop_token.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let signals = StopController {
            controls,
            stop_token: breaking,
            leave_token: CancellationToken::new(),
            first_signal: std::sync::Arc::default(),
            start_requested: std::sync::Arc::default(),
            control_sender: sender.downgrade(),
            user_actions: asks,
            escalation: ladder,
            stops_on_interrupt: std::sync::Arc::new((part == InterruptPolicy::Stop).into()),
        };
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let (ladder, leave, first, go, launcher) = (
            Arc::clone(&signals.escalation),
            signals.leave_token.clone(),
            signals.first_signal.clone(),
            signals.start_requested.clone(),
            signals.stops_on_interrupt.clone(),
        );
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
                        UserAction::Interrupt => (2, "Ctrl-C"),
                        UserAction::Hangup => (1, "SIGHUP"),
                        UserAction::Start => {
                            go.notify_one();
                            continue;
                        }
                        UserAction::LeaveNow | UserAction::DashboardPanicked => {
                            came(2);
                            leave.cancel();
                            return;
                        }
                        other => {
                            let why = "asked for on the dashboard".to_owned();
                            let control = match other {
                                UserAction::Stop => RunControl::Stop { reason: why },
                                UserAction::Kill => RunControl::Kill { reason: why },
                                UserAction::TearDown => RunControl::Teardown,
                                UserAction::Restart => RunControl::Restart,
                                _ => RunControl::Detach,
                            };
                            if matches!(control, RunControl::Stop { .. } | RunControl::Kill { .. }) {
                                came(2);
                                ladder.by_key.store(true, Relaxed);
                                ladder.cancel_steps();
                                ladder.interrupt_count.fetch_max(1, Relaxed);
                            }
                            if sender.send(control).await.is_err() {
                                return;
                            }
                            continue;
                        }
                    },
                };
                came(number);
                let count = ladder.interrupt_count.load(Relaxed);
                let control = if number == 1 || !launcher.load(Relaxed) {
                    if count > 0 {
                        leave.cancel();
                    }
                    RunControl::Detach
                } else if count == 0 {
                    print_stderr(&format!("{name}: stopping the ranks; once more kills them"));
                    ladder.cancel_steps();
                    RunControl::Stop { reason: name.to_owned() }
                } else if count == 1 {
                    print_stderr(&format!("{name}: killing the ranks; once more leaves at once"));
                    RunControl::Kill { reason: format!("second {name}") }
                } else {
                    leave.cancel();
                    return;
                };
                if number != 1 || !launcher.load(Relaxed) {
                    ladder.interrupt_count.fetch_add(1, Relaxed);
                }
                if sender.send(control).await.is_err() {
                    return;
                }
            }
        });
        Ok(signals)
    }

    /// Whether the stop was asked for by a key of the dashboard, and not by a signal.
    pub fn is_stopped_by_key(&self) -> bool {
        self.escalation.by_key.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Forgets what was asked: another launch begins.
    pub fn reset(&mut self) {
        let fresh = CancellationToken::new();
        *self.escalation.stop_token.lock().unwrap_or_else(PoisonError::into_inner) = fresh.clone();
        self.stop_token = fresh;
        self.escalation.by_key.store(false, std::sync::atomic::Ordering::Relaxed);
        self.escalation.interrupt_count.store(0, std::sync::atomic::Ordering::Relaxed);
        self.first_signal.store(0, std::sync::atomic::Ordering::Relaxed);
    }

    /// Where the actions of the person at the dashboard go.
    pub fn action_sender(&self) -> mpsc::UnboundedSender<UserAction> {
        self.user_actions.clone()
    }

    /// What the dashboard may offer to this one.
    pub fn dashboard_role(&self) -> DashboardRole {
        if self.stops_on_interrupt.load(std::sync::atomic::Ordering::Relaxed) { DashboardRole::Owner } else { DashboardRole::Observer }
    }

    /// From now on this one merely looks, or launches.
    pub fn set_policy(&self, part: InterruptPolicy) {
        self.stops_on_interrupt.store(part == InterruptPolicy::Stop, std::sync::atomic::Ordering::Relaxed);
    }

    /// The signal that came first.
    pub fn first_signal(&self) -> Option<i32> {
        Some(self.first_signal.load(std::sync::atomic::Ordering::Relaxed)).filter(|n| *n != 0)
    }
}
