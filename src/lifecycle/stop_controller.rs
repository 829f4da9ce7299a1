#![expect(clippy::disallowed_methods, reason = "a task listens for signals")]
//! Listens for signals and dashboard actions, and passes the responses of the stop ladder to the workflow.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::termios::tcgetpgrp;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::event::controls::{DashboardRole, UserAction};
use crate::event::{Outcome, RunControl};
use crate::lifecycle::hangup_signal::HangupSignal;
use crate::lifecycle::stop_ladder::{InterruptPolicy, StopInput, StopLadder};

pub(crate) struct StopController {
    pub(crate) controls: mpsc::Receiver<RunControl>,
    /// Cancelled by the first stop: no further step starts.
    pub(crate) stop_token: CancellationToken,
    /// Cancelled where a command that only follows detaches.
    detach_token: CancellationToken,
    /// Cancelled when the command must leave without waiting for the hosts.
    pub(crate) leave_token: CancellationToken,
    /// Notified when the user starts the launch on the dashboard.
    pub(crate) start_requested: Arc<Notify>,
    /// For controls that come from no signal. Weak: it does not keep the channel open.
    pub(crate) control_sender: mpsc::WeakSender<RunControl>,
    // Unbounded: one action per key press; no host can fill it.
    user_actions: mpsc::UnboundedSender<UserAction>,
    shared: Arc<Mutex<Shared>>,
}

/// A signal that follows the first one of its kind within this time is the same request: `timeout` of GNU coreutils signals its child, then its own
/// group, in which the child is (timeout.c, `send_sig`). No person presses a key twice so fast.
const SAME_REQUEST: Duration = Duration::from_millis(100);

/// Finds the second of two signals that are one request.
#[derive(Default)]
struct RepeatedSignal {
    accepted: Option<(StopInput, Instant)>,
}

impl RepeatedSignal {
    /// `is_second`: one interrupt came before this input. Later ones are never taken as repeated.
    fn is_repeated(&mut self, input: StopInput, is_second: bool, now: Instant) -> bool {
        if !matches!(input, StopInput::Interrupt | StopInput::SentInterrupt | StopInput::Terminate) {
            return false;
        }
        let is_repeated = is_second && self.accepted.is_some_and(|(before, at)| before == input && now - at < SAME_REQUEST);
        if !is_repeated {
            self.accepted = Some((input, now));
        }
        is_repeated
    }
}

/// Used by the listener and the workflow.
struct Shared {
    ladder: StopLadder,
    stop_token: CancellationToken,
    detach_token: CancellationToken,
}

impl StopController {
    /// Starts to listen. `print` shows the messages of the ladder.
    ///
    /// # Errors
    /// A signal handler could not be installed.
    pub(crate) fn listen(policy: InterruptPolicy, print: fn(&str)) -> std::io::Result<StopController> {
        let (sender, controls) = mpsc::channel(16);
        let (user_actions, actions) = mpsc::unbounded_channel();
        let (stop_token, detach_token) = (CancellationToken::new(), CancellationToken::new());
        let shared = Shared { ladder: StopLadder::new(policy), stop_token: stop_token.clone(), detach_token: detach_token.clone() };
        let controller = StopController {
            controls,
            stop_token,
            detach_token,
            leave_token: CancellationToken::new(),
            start_requested: Arc::default(),
            control_sender: sender.downgrade(),
            user_actions,
            shared: Arc::new(Mutex::new(shared)),
        };
        let listener = Listener {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: HangupSignal::listen()?,
            actions,
            controls: sender,
            leave_token: controller.leave_token.clone(),
            start_requested: Arc::clone(&controller.start_requested),
            shared: Arc::clone(&controller.shared),
            print,
        };
        tokio::spawn(listener.run());
        Ok(controller)
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a key of the dashboard stopped the run, not a signal.
    pub(crate) fn is_stopped_by_key(&self) -> bool {
        self.shared().ladder.is_stopped_by_key()
    }

    /// For the next launch of the same command.
    pub(crate) fn reset(&mut self) {
        (self.stop_token, self.detach_token) = (CancellationToken::new(), CancellationToken::new());
        let mut shared = self.shared();
        (shared.stop_token, shared.detach_token) = (self.stop_token.clone(), self.detach_token.clone());
        shared.ladder.reset();
    }

    pub(crate) fn action_sender(&self) -> mpsc::UnboundedSender<UserAction> {
        self.user_actions.clone()
    }

    pub(crate) fn dashboard_role(&self) -> DashboardRole {
        self.shared().ladder.dashboard_role()
    }

    pub(crate) fn set_policy(&self, policy: InterruptPolicy) {
        self.shared().ladder.set_policy(policy);
    }

    pub(crate) fn first_signal(&self) -> Option<i32> {
        self.shared().ladder.first_signal()
    }

    /// The outcome of a command that a signal ended, or a key that detaches.
    pub(crate) fn signal_outcome(&self) -> Outcome {
        self.first_signal().map_or(Outcome::Detached, Outcome::Signal)
    }

    /// # Errors
    /// The outcome of the signal that cancelled the work.
    pub(crate) async fn run_until_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T, Outcome> {
        let work = self.detach_token.run_until_cancelled(self.leave_token.run_until_cancelled(work));
        self.stop_token.run_until_cancelled(work).await.flatten().flatten().ok_or_else(|| self.signal_outcome())
    }

    /// # Errors
    /// The outcome of the signal after which the command does not wait for the hosts.
    pub(crate) async fn run_until_leaving<T>(&self, work: impl Future<Output = T>) -> Result<T, Outcome> {
        self.leave_token.run_until_cancelled(work).await.ok_or_else(|| self.signal_outcome())
    }
}

/// Whether keys of the controlling terminal send signals to this process.
fn is_in_foreground() -> bool {
    let terminal = rustix::fs::open("/dev/tty", OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty());
    terminal.and_then(tcgetpgrp).is_ok_and(|group| group == rustix::process::getpgrp())
}

struct Listener {
    interrupt: Signal,
    terminate: Signal,
    hangup: HangupSignal,
    actions: mpsc::UnboundedReceiver<UserAction>,
    controls: mpsc::Sender<RunControl>,
    leave_token: CancellationToken,
    start_requested: Arc<Notify>,
    shared: Arc<Mutex<Shared>>,
    print: fn(&str),
}

impl Listener {
    async fn run(mut self) {
        let mut repeated = RepeatedSignal::default();
        loop {
            let input = tokio::select! {
                _ = self.interrupt.recv() => if is_in_foreground() { StopInput::Interrupt } else { StopInput::SentInterrupt },
                _ = self.terminate.recv() => StopInput::Terminate,
                () = self.hangup.recv() => StopInput::Hangup,
                Some(action) = self.actions.recv() => StopInput::Action(action),
            };
            let (response, stop_token, detach_token) = {
                let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
                if repeated.is_repeated(input, shared.ladder.has_one_interrupt(), Instant::now()) {
                    continue;
                }
                (shared.ladder.handle(input), shared.stop_token.clone(), shared.detach_token.clone())
            };
            if let Some(message) = &response.message {
                (self.print)(message);
            }
            if response.cancel_steps {
                stop_token.cancel();
            }
            if response.cancel_waits {
                detach_token.cancel();
            }
            if response.leave_now {
                self.leave_token.cancel();
            }
            if response.start {
                self.start_requested.notify_one();
            }
            if response.is_last() {
                return;
            }
            if let Some(control) = response.control
                && self.controls.send(control).await.is_err()
            {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_signals_at_once_are_one_request() {
        let (int, term) = (StopInput::Interrupt, StopInput::Terminate);
        // Milliseconds since the signal before, and the signal; the responses of the stop ladder.
        let cases = [
            (vec![(0, int), (1, int)], vec!["stop"]),
            (vec![(0, term), (1, term)], vec!["stop"]),
            (vec![(0, int), (1, term)], vec!["stop", "kill"]),
            (vec![(0, int), (100, int)], vec!["stop", "kill"]),
            // The second and the third key press arrive together.
            (vec![(0, int), (5_000, int), (1, int)], vec!["stop", "kill", "leave"]),
            // The window does not slide: a third one is the second press.
            (vec![(0, int), (60, int), (60, int)], vec!["stop", "kill"]),
            // As `timeout -s INT` sends it.
            (vec![(0, StopInput::SentInterrupt), (1, StopInput::SentInterrupt)], vec!["stop"]),
            // An action of the dashboard came first.
            (vec![(0, StopInput::Action(UserAction::Stop)), (1, int)], vec!["stop", "kill"]),
        ];
        for (inputs, wanted) in cases {
            let (mut repeated, mut ladder) = (RepeatedSignal::default(), StopLadder::new(InterruptPolicy::Stop));
            let mut now = Instant::now();
            let mut responses = Vec::new();
            for (after, input) in &inputs {
                now += Duration::from_millis(*after);
                if repeated.is_repeated(*input, ladder.has_one_interrupt(), now) {
                    continue;
                }
                responses.push(match ladder.handle(*input) {
                    response if response.leave_now => "leave",
                    response if matches!(response.control, Some(RunControl::Kill { .. })) => "kill",
                    _ => "stop",
                });
            }
            assert_eq!(responses, wanted, "{inputs:?}");
        }
    }
}
