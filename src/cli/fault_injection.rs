#![cfg(debug_assertions)]
#![expect(clippy::disallowed_methods, reason = "waits for the word of a test")]
//! Rehearses that this program breaks, so that tests see what becomes of the terminal and of the run. Not in a release build.

use std::time::Duration;

use crate::tui::feed::{FeedMessage, WeakFeedSender};

/// Breaks where the file that `$ORCHESTRATE_REHEARSAL` names says, once it is there: `task` or `screen`.
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

#[expect(clippy::panic, reason = "that is what is rehearsed")]
fn panic_in_task() -> ! {
    panic!("rehearsed in the task")
}
