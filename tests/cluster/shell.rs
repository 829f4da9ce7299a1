//! `shell` on real hosts: OpenSSH's terminal with `docker exec -it` behind it, bash if the image has it, else sh.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::laptop::{Laptop, path_str, wait_until};
use crate::support::{Cluster, JobSpec};
use crate::terminal::PtyTerminal;

fn open_terminal(laptop: &Laptop, words: &[&str]) -> PtyTerminal {
    let text = |path: &Path| path.display().to_string();
    let own = [("HOME", text(laptop.home())), ("XDG_STATE_HOME", text(&laptop.home().join("state"))), ("USER", "tester".to_owned())];
    let variables: BTreeMap<String, String> = own.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    PtyTerminal::start(Path::new(env!("CARGO_BIN_EXE_orchestrate")), words, laptop.home(), &variables, (100, 30))
}

/// Gives the terminal another size, and waits until the shell in it knows.
fn resize_shell(terminal: &mut PtyTerminal) {
    terminal.press("until [ \"$(stty size)\" = '20 70' ]; do sleep 0.1; done; echo resized-$((40 + 2))\r");
    // Docker's client misses a change that comes between its first look at the size and its handler for later ones.
    let mut columns = (70..72).cycle();
    wait_until("the shell has the terminal's new size", || {
        terminal.resize(columns.next().unwrap_or(70), 20);
        std::thread::sleep(Duration::from_millis(500));
        terminal.screen_text().contains("resized-42").then_some(())
    });
    terminal.resize(70, 20);
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn container_shell_has_a_terminal_and_leaves_nothing() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let job = JobSpec::torch("enter").with_command(&["--no_python", "/bin/sh", "/mnt/rank.sh"]);
    let file = cluster.write_inventory(&laptop, &job);
    laptop.run(&["up", "-d", path_str(&file)]).assert_exit_code(0);
    let mut terminal = open_terminal(&laptop, &["shell", "-i", path_str(&file), "3"]);
    terminal.wait_for_text("rank 3 on gpu02, in the container orch-enter-gpu02");
    // bash in a terminal of this size, with torchrun's variables.
    terminal.press("echo \"<${BASH_VERSION:+bash} $TERM $RANK/$WORLD_SIZE $LOCAL_RANK ${TORCHELASTIC_RUN_ID:+elastic}>\"; stty size\r");
    terminal.wait_for_text("<bash xterm-256color 3/4 1 elastic>");
    terminal.wait_for_text("30 100");
    resize_shell(&mut terminal);
    // A shell that is about to exec another program would lose Ctrl-C: this one waits for it.
    terminal.press("sh -c 'trap \"exit 5\" INT; echo began-$((40 + 2)); while :; do sleep 0.1; done'\r");
    terminal.wait_for_text("began-42");
    terminal.press("\x03");
    terminal.press("echo ended-$?\r");
    terminal.wait_for_text("ended-5");
    terminal.press("exit 7\r");
    assert_eq!(terminal.wait_for_exit(), 7, "{}", terminal.screen_text());
    terminal.assert_restored();
    // Docker leaves a program running when its client disconnects; orchestrate ends it.
    let mut terminal = open_terminal(&laptop, &["shell", "-i", path_str(&file), "gpu01"]);
    terminal.wait_for_text("gpu01, in the container orch-enter-gpu01");
    terminal.press("sleep 4711 & echo put-$((40 + 2))\r");
    terminal.wait_for_text("put-42");
    terminal.press("~.");
    assert_eq!(terminal.wait_for_exit(), 129, "{}", terminal.screen_text());
    terminal.assert_restored();
    let left = || cluster.exec_on("gpu01", "docker top orch-enter-gpu01 -eo args | grep -c -e '^bash' -e 'sleep 4711' || true");
    wait_until("the shell and its background job are gone", || (left().trim() == "0").then_some(()));
    // Without a terminal.
    laptop
        .run(&["shell", "-i", path_str(&file), "gpu02", "--", "test -t 0 || echo piped on $ORCH_HOST; exit 5"])
        .assert_exit_code(5)
        .assert_contains("piped on gpu02");
    laptop.run(&["down", path_str(&file)]).assert_exit_code(0);
    // An image without bash.
    let job = JobSpec::busybox("plain");
    let file = cluster.write_inventory(&laptop, &job);
    laptop.run(&["up", "-d", path_str(&file)]).assert_exit_code(0);
    let mut terminal = open_terminal(&laptop, &["shell", "-i", path_str(&file), "0"]);
    terminal.wait_for_text("rank 0 on gpu01, in the container orch-plain-gpu01");
    terminal.press("echo \"<${BASH_VERSION:-sh} $RANK of $WORLD_SIZE>\"; stty size\r");
    terminal.wait_for_text("<sh 0 of 2>");
    terminal.wait_for_text("30 100");
    terminal.press("\x04");
    assert_eq!(terminal.wait_for_exit(), 0, "{}", terminal.screen_text());
    terminal.assert_restored();
    laptop.run(&["down", path_str(&file)]).assert_exit_code(0);
}
