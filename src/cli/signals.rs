#![expect(clippy::disallowed_methods, reason = "signals are listened to in a task")]
//! The Ctrl-C ladder and the hang-up, as controls for the engine.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::cli::laptop::say;
use crate::event::Control;

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
    /// Where more controls may come from.
    pub sender: mpsc::Sender<Control>,
    part: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

impl Signals {
    /// Listens from now on.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn listen(part: Part) -> std::io::Result<Signals> {
        use std::sync::atomic::Ordering::Relaxed;
        let (sender, controls) = mpsc::channel(16);
        let signals = Signals {
            controls,
            breaking: CancellationToken::new(),
            leave: CancellationToken::new(),
            first: std::sync::Arc::default(),
            sender: sender.clone(),
            part: std::sync::Arc::new((part == Part::Launcher).into()),
        };
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let (breaking, leave, first, launcher) =
            (signals.breaking.clone(), signals.leave.clone(), signals.first.clone(), signals.part.clone());
        tokio::spawn(async move {
            let mut count = 0;
            loop {
                let (number, name) = tokio::select! {
                    _ = interrupt.recv() => (2, "Ctrl-C"),
                    _ = terminate.recv() => (15, "SIGTERM"),
                    _ = hangup.recv() => (1, "SIGHUP"),
                };
                if first.load(Relaxed) == 0 {
                    first.store(number, Relaxed);
                }
                let control = if number == 1 || !launcher.load(Relaxed) {
                    if count > 0 {
                        leave.cancel();
                    }
                    Control::Detach
                } else if count == 0 {
                    say(&format!("{name}: stopping the ranks; once more kills them"));
                    breaking.cancel();
                    Control::Stop { why: name.to_owned() }
                } else if count == 1 {
                    say(&format!("{name}: killing the ranks; once more leaves at once"));
                    Control::Kill { why: format!("second {name}") }
                } else {
                    leave.cancel();
                    return;
                };
                if number != 1 || !launcher.load(Relaxed) {
                    count += 1;
                }
                if sender.send(control).await.is_err() {
                    return;
                }
            }
        });
        Ok(signals)
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
