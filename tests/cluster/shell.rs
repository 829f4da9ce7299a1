//! A shell where the run is, on real hosts: OpenSSH's terminal, `docker exec -it` behind it, bash where the image has it and sh where not.

use std::collections::BTreeMap;
use std::path::Path;

use crate::laptop::{Laptop, until, word};
use crate::support::{Cluster, Job};
use crate::terminal::Terminal;

fn open(laptop: &Laptop, words: &[&str]) -> Terminal {
    let text = |path: &Path| path.display().to_string();
    let own = [("HOME", text(laptop.home())), ("XDG_STATE_HOME", text(&laptop.home().join("state"))), ("USER", "tester".to_owned())];
    let variables: BTreeMap<String, String> = own.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Terminal::start(Path::new(env!("CARGO_BIN_EXE_orchestrate")), words, laptop.home(), &variables, (100, 30))
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn a_shell_in_the_container_of_a_rank_is_a_terminal_and_leaves_nothing_behind() {
    let cluster = Cluster::take();
    let laptop = Laptop::new();
    let job = Job::torch("enter").command(&["--no_python", "/bin/sh", "/mnt/rank.sh"]);
    let file = cluster.inventory(&laptop, &job);
    laptop.run(&["up", "-d", word(&file)]).code(0);
    let mut terminal = open(&laptop, &["shell", "-i", word(&file), "3"]);
    terminal.sees("rank 3 on gpu02, in the container orch-enter-gpu02");
    // bash, with a terminal of this size, and the variables that torchrun gave.
    terminal.press("echo \"<${BASH_VERSION:+bash} $TERM $RANK/$WORLD_SIZE $LOCAL_RANK ${TORCHELASTIC_RUN_ID:+elastic}>\"; stty size\r");
    terminal.sees("<bash xterm-256color 3/4 1 elastic>");
    terminal.sees("30 100");
    terminal.resize(70, 20);
    terminal.press("until [ \"$(stty size)\" = '20 70' ]; do sleep 0.1; done; echo resized-$((40 + 2))\r");
    terminal.sees("resized-42");
    // A shell that is about to become another program would lose Ctrl-C: this one waits for it.
    terminal.press("sh -c 'trap \"exit 5\" INT; echo began-$((40 + 2)); while :; do sleep 0.1; done'\r");
    terminal.sees("began-42");
    terminal.press("\x03");
    terminal.press("echo ended-$?\r");
    terminal.sees("ended-5");
    terminal.press("exit 7\r");
    assert_eq!(terminal.ends(), 7, "{}", terminal.text());
    terminal.is_as_before();
    // Docker leaves a program alone whose client hung up; we do not.
    let mut terminal = open(&laptop, &["shell", "-i", word(&file), "gpu01"]);
    terminal.sees("gpu01, in the container orch-enter-gpu01");
    terminal.press("sleep 4711 & echo put-$((40 + 2))\r");
    terminal.sees("put-42");
    terminal.press("~.");
    assert_eq!(terminal.ends(), 129, "{}", terminal.text());
    terminal.is_as_before();
    let left = || cluster.on("gpu01", "docker top orch-enter-gpu01 -eo args | grep -c -e '^bash' -e 'sleep 4711' || true");
    until("the shell and what it began are gone", || (left().trim() == "0").then_some(()));
    // Without a terminal.
    laptop
        .run(&["shell", "-i", word(&file), "gpu02", "--", "test -t 0 || echo piped on $ORCH_HOST; exit 5"])
        .code(5)
        .says("piped on gpu02");
    laptop.run(&["down", word(&file)]).code(0);
    // An image without bash.
    let job = Job::quick("plain");
    let file = cluster.inventory(&laptop, &job);
    laptop.run(&["up", "-d", word(&file)]).code(0);
    let mut terminal = open(&laptop, &["shell", "-i", word(&file), "0"]);
    terminal.sees("rank 0 on gpu01, in the container orch-plain-gpu01");
    terminal.press("echo \"<${BASH_VERSION:-sh} $RANK of $WORLD_SIZE>\"; stty size\r");
    terminal.sees("<sh 0 of 2>");
    terminal.sees("30 100");
    terminal.press("\x04");
    assert_eq!(terminal.ends(), 0, "{}", terminal.text());
    terminal.is_as_before();
    laptop.run(&["down", word(&file)]).code(0);
    cluster.as_before();
}
