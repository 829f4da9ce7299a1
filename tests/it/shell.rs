//! `shell`: in a terminal, from a pipe, and from the dashboard; however it ends, the terminal is restored.

use std::process::Stdio;

use orchestrate::sandbox::Faults;
use tokio::io::AsyncWriteExt as _;

use crate::support::{JobSpec, Laptop, SandboxFixture, path_str, wait_until};
use crate::terminal::PtyTerminal;
use crate::tui::{alive, assert_ranks_alive_then_down, open_terminal, start_attached_dashboard};

/// Two ranks on two hosts that run until they are ended.
async fn start_two_rank_run(name: &str) -> (SandboxFixture, Laptop, std::path::PathBuf, Vec<i32>) {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory(name, &JobSpec::default()));
    laptop.run(&["up", "-d", path_str(&file)]).await.assert_exit_code(0);
    let pids = fixture.wait_for_ranks(2).await;
    (fixture, laptop, file, pids)
}

/// Types a line repeatedly until its result is on the screen.
async fn type_until(terminal: &mut PtyTerminal, line: &str, wanted: &str) {
    wait_until(wanted, async || {
        terminal.press(line);
        terminal.press("\r");
        for _ in 0..20 {
            if terminal.screen_text().contains(wanted) {
                return Some(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        None
    })
    .await;
}

/// The pid of the shell in the terminal, which the shell writes to a file.
async fn shell_pid(fixture: &SandboxFixture, terminal: &mut PtyTerminal) -> i32 {
    let file = fixture.control_dir().join("shell");
    terminal.press("echo $$ >$BENCH/shell.new; mv $BENCH/shell.new $BENCH/shell\r");
    let pid = wait_until("the shell's number", async || std::fs::read_to_string(&file).ok()?.trim().parse().ok()).await;
    std::fs::remove_file(&file).expect("removed");
    pid
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interactive_shell_runs_beside_a_rank() {
    let (fixture, laptop, file, pids) = start_two_rank_run("talk").await;
    let mut terminal = open_terminal(&laptop, &["shell", "-i", path_str(&file), "1"]);
    terminal.wait_for_text("rank 1 on gpu02, in the container orch-talk-gpu02 of run 20");
    terminal.press("echo \"<$RANK of $WORLD_SIZE at $LOCAL_RANK on $ORCH_HOST, ${MASTER_PORT:+port}, mark=$ORCH_RUN_ID>\"\r");
    terminal.wait_for_text("<1 of 2 at 0 on gpu02, port, mark=>");
    // The remote terminal has this one's size, also after a resize.
    terminal.press("stty size; tty | cut -c1-5\r");
    terminal.wait_for_text("30 100");
    terminal.resize(90, 20);
    type_until(&mut terminal, "stty size", "20 90").await;
    // Ctrl-C reaches the remote program, even if this test was started with SIGINT ignored. A shell that is about to exec would lose it, so
    // this one waits.
    terminal.press("env --default-signal=INT sh -c 'trap \"exit 5\" INT; echo began-$((40 + 2)); while :; do sleep 0.1; done'\r");
    terminal.wait_for_text("began-42");
    terminal.press("\x03");
    terminal.press("echo ended-$?\r");
    terminal.wait_for_text("ended-5");
    terminal.press("exit 7\r");
    assert_eq!(terminal.wait_for_exit(), 7, "{}", terminal.screen_text());
    terminal.assert_restored();
    assert_ranks_alive_then_down(fixture, &laptop, &file, &pids).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terminal_is_restored_however_shell_ends() {
    let (fixture, laptop, file, pids) = start_two_rank_run("leave").await;
    let words = ["shell", "-i", path_str(&file), "gpu01"];
    let begin = || {
        let terminal = open_terminal(&laptop, &words);
        terminal.wait_for_text("disconnects");
        terminal
    };
    let gone = async |pid: i32| wait_until("the shell is gone", async || (!alive(pid)).then_some(())).await;
    // As with ssh, only at the beginning of a line.
    let mut terminal = begin();
    let pid = shell_pid(&fixture, &mut terminal).await;
    terminal.press("echo at ~.\r");
    terminal.wait_for_text("at ~.");
    terminal.press("~.");
    assert_eq!(terminal.wait_for_exit(), 129, "{}", terminal.screen_text());
    terminal.assert_restored();
    gone(pid).await;
    // Ended by a signal; changes that the program made to the screen are undone.
    let mut terminal = begin();
    let pid = shell_pid(&fixture, &mut terminal).await;
    terminal.press("printf '\\033[?1049h\\033[?25l\\033[?1000h'; echo drawn-$((6 * 7))\r");
    terminal.wait_for_text("drawn-42");
    terminal.send_signal("TERM");
    assert_eq!(terminal.wait_for_exit(), 143, "{}", terminal.screen_text());
    terminal.assert_restored();
    gone(pid).await;
    // Ended by a lost connection.
    let mut terminal = begin();
    let pid = shell_pid(&fixture, &mut terminal).await;
    fixture.sandbox.drop_connections("gpu01").expect("a host");
    assert_eq!(terminal.wait_for_exit(), 255, "{}", terminal.screen_text());
    terminal.assert_restored();
    terminal.wait_for_text("the connection was lost");
    gone(pid).await;
    // Ended by closing the terminal.
    let mut terminal = begin();
    let pid = shell_pid(&fixture, &mut terminal).await;
    terminal.hang_up();
    assert_eq!(terminal.wait_for_exit(), 129);
    gone(pid).await;
    // An sshd that refuses terminals.
    fixture.set_faults("gpu01", &Faults { no_terminal: true, ..Faults::default() });
    let mut terminal = open_terminal(&laptop, &words);
    assert_eq!(terminal.wait_for_exit(), 255, "{}", terminal.screen_text());
    terminal.assert_restored();
    terminal.wait_for_text("sshd refused to allocate a terminal");
    assert_ranks_alive_then_down(fixture, &laptop, &file, &pids).await;
}

/// Runs a command with this input; returns its exit code and both outputs.
async fn run_with_input(laptop: &Laptop, words: &[&str], input: &str) -> (Option<i32>, String, String) {
    let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_orchestrate"))
        .args(words)
        .env_clear()
        .envs(laptop.terminal_env())
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("orchestrate starts");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(input.as_bytes()).await.expect("written");
    drop(stdin);
    let out = child.wait_with_output().await.expect("it ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code(), text(&out.stdout), text(&out.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shell_without_terminal_passes_input_and_status() {
    let (fixture, laptop, file, pids) = start_two_rank_run("pipe").await;
    let shell = |rest: &[&'static str]| -> Vec<String> {
        ["shell", "-i", path_str(&file)].iter().chain(rest).map(|word| (*word).to_owned()).collect()
    };
    let run = async |rest: &[&'static str], input: &str| {
        let words = shell(rest);
        run_with_input(&laptop, &words.iter().map(String::as_str).collect::<Vec<_>>(), input).await
    };
    // A script on standard input: the programs it starts can read the rest of the input.
    let (code, out, err) = run(&["gpu01"], "echo on $ORCH_HOST; echo aside >&2; cat; exit 5\nthe rest\n").await;
    assert_eq!((code, out.as_str(), err.as_str()), (Some(5), "on gpu01\nthe rest\n", "aside\n"));
    // Several arguments arrive unchanged, a single one is a shell line.
    let (code, out, _) = run(&["gpu02", "--", "printf", "%s|", "a  b", "$HOME", "it's"], "").await;
    assert_eq!((code, out.as_str()), (Some(0), "a  b|$HOME|it's|"));
    let (code, out, _) = run(&["0", "--", "echo rank $RANK | tr a-z A-Z; exit 3"], "").await;
    assert_eq!((code, out.as_str()), (Some(3), "RANK 0\n"));
    let (code, out, _) = run(&["gpu01", "--", "nvidia-smi", "-L"], "").await;
    assert!(code == Some(0) && out.lines().count() == 2, "{out}");
    let (code, out, _) = run(&["gpu01", "--", "wc", "-c"], &"x".repeat(3_000_000)).await;
    assert_eq!((code, out.trim()), (Some(0), "3000000"));
    assert_eq!(run(&["gpu01", "--", "no-such-program"], "").await.0, Some(127));
    assert_eq!(run(&["gpu01", "--", "kill -9 $$"], "").await.0, Some(137));
    assert_ranks_alive_then_down(fixture, &laptop, &file, &pids).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_container_names_the_next_command() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("none", &JobSpec::default()));
    let words = |location: &'static str| ["shell", "-i", path_str(&file), location];
    laptop
        .run(&words("gpu01"))
        .await
        .assert_exit_code(255)
        .assert_contains("gpu01: no container of none")
        .assert_contains("` creates one; `orchestrate exec ");
    laptop.run(&words("0")).await.assert_exit_code(255).assert_contains("no run of none is on any host").assert_contains("orchestrate up");
    laptop
        .run(&words("gpu9"))
        .await
        .assert_exit_code(2)
        .assert_contains("`gpu9` is neither a host of this inventory nor a rank")
        .assert_contains("the hosts are gpu01, gpu02");
    let forgotten = laptop.run(&["shell", "job.yaml"]).await;
    forgotten.assert_exit_code(2).assert_contains("`job.yaml` is an inventory: name a host or a rank after it");
    // A bare host can be entered at any time.
    let bare = fixture.write_inventory("bare", &JobSpec { in_container: false, ..JobSpec::default() });
    let home = fixture.host_home(0).canonicalize().expect("there").display().to_string();
    laptop.run(&["shell", "-i", path_str(&bare), "gpu01", "--", "pwd -P"]).await.assert_exit_code(0).assert_contains(&home);
    laptop.run(&["up", "-d", path_str(&bare)]).await.assert_exit_code(0);
    fixture.wait_for_ranks(2).await;
    let line = "echo \"<$RANK $WORLD_SIZE $ORCH_HOST $ORCH_RUN_ID>\"";
    laptop.run(&["shell", path_str(&bare), "r1", "--", line]).await.assert_exit_code(0).assert_contains("<1 2 gpu02 >");
    laptop.run(&["shell", "-i", path_str(&bare), "9"]).await.assert_exit_code(255).assert_contains("has no rank 9: it has ranks 0-1");
    laptop.run(&["down", path_str(&bare)]).await.assert_exit_code(0).assert_contains("nothing is left");
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dashboard_opens_shell_and_returns() {
    let (fixture, laptop, file, mut terminal, pids) = start_attached_dashboard("visit").await;
    terminal.press("3");
    terminal.wait_for_text("3-[Ranks]");
    terminal.press("S");
    // The one under the cursor, whichever was up first.
    let text = terminal.wait_for_text("returns to the dashboard");
    let rank = usize::from(text.contains("rank 1 on gpu02"));
    let host = ["gpu01", "gpu02"][rank];
    assert!(text.contains(&format!("rank {rank} on {host}, in the container orch-visit-{host} of run 20")), "{text}");
    assert!(!text.contains("3-[Ranks]"), "the dashboard has left the screen");
    terminal.press("echo \"<$RANK of $WORLD_SIZE>\" $((6 * 7))\r");
    terminal.wait_for_text(&format!("<{rank} of 2> 42"));
    // Events that arrive meanwhile are processed.
    terminal.resize(120, 40);
    type_until(&mut terminal, "stty size", "40 120").await;
    terminal.press("exit 3\r");
    terminal.wait_for_text(&format!("back from {host}: the shell exited with 3"));
    let text = terminal.wait_for_text("3-[Ranks]");
    assert!(text.contains("rank 0 of 2 on gpu01") && !text.contains("> 42"), "redrawn:\n{text}");
    // Again, from a host; the end of the run does not close the dashboard.
    terminal.press("2");
    terminal.wait_for_text("2-[Host]");
    terminal.press("S");
    terminal.wait_for_text("gpu01, in the container orch-visit-gpu01");
    terminal.press("echo here-$((50 + 5))\r");
    // Ctrl-D is the end of input only at the prompt: between two commands the terminal hands it on as a zero byte.
    terminal.wait_until("a prompt behind here-55", |text| text.rsplit_once("here-55").is_some_and(|(_, rest)| rest.contains(['#', '$'])));
    terminal.press("\x04");
    terminal.wait_for_text("back from gpu01");
    terminal.wait_for_text("2-[Host]");
    terminal.press("Q");
    assert_eq!(terminal.wait_for_exit(), 0, "{}", terminal.screen_text());
    terminal.assert_restored();
    // A signal while the shell owns the screen.
    let mut terminal = open_terminal(&laptop, &["tui", path_str(&file)]);
    terminal.wait_for_text("RUNNING");
    terminal.press("S");
    terminal.wait_for_text("returns to the dashboard");
    let pid = shell_pid(&fixture, &mut terminal).await;
    terminal.send_signal("TERM");
    assert_eq!(terminal.wait_for_exit(), 143, "{}", terminal.screen_text());
    terminal.assert_restored();
    wait_until("the shell is gone", async || (!alive(pid)).then_some(())).await;
    assert_ranks_alive_then_down(fixture, &laptop, &file, &pids).await;
}
