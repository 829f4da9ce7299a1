#![cfg(debug_assertions)]
#![expect(clippy::disallowed_methods, reason = "polls a file that a test writes")]
//! Panics on request, so that tests see what happens to the terminal and the run. Not in release builds.

use std::time::Duration;

use crate::tui::feed::{FeedMessage, WeakFeedSender};

/// Waits for the file that `$ORCHESTRATE_REHEARSAL` names. Its content says what panics: `task` or `screen`.
pub(super) fn spawn_fault_listener(feed_sender: WeakFeedSender) {
    let Some(path) = std::env::var_os("ORCHESTRATE_REHEARSAL") else { return };
    tokio::spawn(async move {
        loop {
            match std::fs::read_to_string(&path).as_deref() {
                Ok("task") => panic_in_task(),
                Ok("screen") => {
                    feed_sender.send(FeedMessage::Panic);
                    return;
                }
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    });
}

#[expect(clippy::panic, reason = "the injected fault")]
fn panic_in_task() -> ! {
    panic!("rehearsed in the task")
}
