//! `down` of a live run that another laptop follows: it asks on a terminal, and refuses without one.

use crate::signals::is_alive;
use crate::support::{JobSpec, SandboxFixture, path_str};
use crate::tui::open_terminal;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn down_asks_while_run_is_followed() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (first, second, file) =
        (fixture.new_laptop("first"), fixture.new_laptop("second"), fixture.write_inventory("watched", &JobSpec::default()));
    let file = path_str(&file);
    let mut up = first.start(&["up", file]);
    let pids = fixture.wait_for_ranks(2).await;
    up.wait_for_output("ready").await;

    // Without a terminal it names the follower and changes nothing. A dry run asks nothing.
    let refused = second.run(&["down", file]).await;
    refused.assert_exit_code(3).assert_contains("tester@").assert_contains("follows the live run of watched: nothing was changed");
    refused.assert_contains(&format!("`orchestrate down {file} --yes` tears it down all the same"));
    second.run(&["down", file, "--dry-run"]).await.assert_exit_code(0);

    // Enter means no, and Ctrl-C cancels.
    for (keys, code) in [("\r", 3), ("n\r", 3), ("\x03", 130)] {
        let mut terminal = open_terminal(&second, &["down", file]);
        terminal.wait_for_text("Stop and remove it?");
        terminal.press(keys);
        assert_eq!(terminal.wait_for_exit(), code, "{}", terminal.screen_text());
    }
    assert!(pids.iter().all(|pid| is_alive(*pid)) && fixture.term_received_at(0).is_none(), "nothing was stopped");

    let mut terminal = open_terminal(&second, &["down", file]);
    terminal.wait_for_text("Stop and remove it?");
    terminal.press("y\r");
    assert_eq!(terminal.wait_for_exit(), 0, "{}", terminal.screen_text());
    up.wait_for_exit().await;
    fixture.assert_clean_and_stop().await;
}

/// A killed follower of this laptop does not count, even if the host still lists it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_followers_do_not_count() {
    let fixture = SandboxFixture::with_hosts(1).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("killed", &JobSpec::default()));
    let mut up = laptop.start(&["up", path_str(&file)]);
    fixture.wait_for_ranks(1).await;
    up.wait_for_output("ready").await;
    up.send_signal("KILL");
    drop(up.wait_for_exit().await);
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0).assert_contains("nothing is left");
    fixture.assert_clean_and_stop().await;
}
