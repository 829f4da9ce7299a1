#![expect(clippy::disallowed_methods, reason = "signals are listened to in a task")]
//! Signals and actions at the dashboard, as controls for the engine.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use crate::event::RunControl;
use crate::event::controls::{DashboardRole, UserAction};
use crate::lifecycle::stop_ladder::{InterruptPolicy, StopInput, StopLadder};

/// What signals turn into.
pub(crate) struct StopController {
    pub(crate) controls: mpsc::Receiver<RunControl>,
    /// Cancelled by the first stop: no further step is begun.
    pub(crate) stop_token: CancellationToken,
    /// Cancelled by the third: leave now.
    pub(crate) leave_token: CancellationToken,
    /// Rings when the person at the dashboard asks for the start.
    pub(crate) start_requested: Arc<Notify>,
    /// The way to the follower, for what is no signal; it does not keep the way open.
    pub(crate) control_sender: mpsc::WeakSender<RunControl>,
    // One action for a key that a person presses: no host can fill it.
    user_actions: mpsc::UnboundedSender<UserAction>,
    shared: Arc<Mutex<Shared>>,
}

/// What the listener and the workflow both use.
struct Shared {
    ladder: StopLadder,
    stop_token: CancellationToken,
}

impl StopController {
    /// Listens from now on; `print` shows the person what a signal does.
    ///
    /// # Errors
    /// Where the system refuses.
    pub(crate) fn listen(policy: InterruptPolicy, print: fn(&str)) -> std::io::Result<StopController> {
        let (sender, controls) = mpsc::channel(16);
        let (user_actions, actions) = mpsc::unbounded_channel();
        let stop_token = CancellationToken::new();
        let shared = Shared { ladder: StopLadder::new(policy), stop_token: stop_token.clone() };
        let controller = StopController {
            controls,
            stop_token,
            leave_token: CancellationToken::new(),
            start_requested: Arc::default(),
            control_sender: sender.downgrade(),
            user_actions,
            shared: Arc::new(Mutex::new(shared)),
        };
        let listener = Listener {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
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

    /// Whether the stop was asked for by a key of the dashboard, and not by a signal.
    pub(crate) fn is_stopped_by_key(&self) -> bool {
        self.shared().ladder.is_stopped_by_key()
    }

    /// Forgets what was asked: another launch begins.
    pub(crate) fn reset(&mut self) {
        let fresh = CancellationToken::new();
        self.shared().stop_token = fresh.clone();
        self.shared().ladder.reset();
        self.stop_token = fresh;
    }

    /// Where the actions of the person at the dashboard go.
    pub(crate) fn action_sender(&self) -> mpsc::UnboundedSender<UserAction> {
        self.user_actions.clone()
    }

    /// What the dashboard may offer to this one.
    pub(crate) fn dashboard_role(&self) -> DashboardRole {
        self.shared().ladder.dashboard_role()
    }

    /// From now on this one merely looks, or launches.
    pub(crate) fn set_policy(&self, policy: InterruptPolicy) {
        self.shared().ladder.set_policy(policy);
    }

    /// The signal that came first.
    pub(crate) fn first_signal(&self) -> Option<i32> {
        self.shared().ladder.first_signal()
    }
}

/// Turns what comes in into what the ladder answers.
struct Listener {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    actions: mpsc::UnboundedReceiver<UserAction>,
    controls: mpsc::Sender<RunControl>,
    leave_token: CancellationToken,
    start_requested: Arc<Notify>,
    shared: Arc<Mutex<Shared>>,
    print: fn(&str),
}

impl Listener {
    async fn run(mut self) {
        loop {
            let input = tokio::select! {
                _ = self.interrupt.recv() => StopInput::Interrupt,
                _ = self.terminate.recv() => StopInput::Terminate,
                _ = self.hangup.recv() => StopInput::Hangup,
                Some(action) = self.actions.recv() => StopInput::Action(action),
            };
            let (response, stop_token) = {
                let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
                (shared.ladder.handle(input), shared.stop_token.clone())
            };
            if let Some(message) = &response.message {
                (self.print)(message);
            }
            if response.cancel_steps {
                stop_token.cancel();
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
