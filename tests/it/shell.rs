//! A shell where the run is: in a terminal, from a pipe, from the dashboard and back; however it ends, the terminal is as it was.

use std::process::Stdio;

use orchestrate::sandbox::Faults;
use tokio::io::AsyncWriteExt as _;

use crate::support::{Bench, Job, Laptop, until, word};
use crate::terminal::Terminal;
use crate::tui::{alive, attached, goes_on, open};

/// Two ranks on two hosts that go on until told.
async fn running(name: &str) -> (Bench, Laptop, std::path::PathBuf, Vec<i32>) {
    let bench = Bench::hosts(2).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory(name, &Job::default()));
    laptop.run(&["up", "-d", word(&file)]).await.code(0);
    let pids = bench.ranks_up(2).await;
    (bench, laptop, file, pids)
}

/// Types a line until the screen shows what comes of it: what it asks about takes its time to arrive there.
async fn typed_until(terminal: &mut Terminal, line: &str, wanted: &str) {
    until(wanted, async || {
        terminal.press(line);
        terminal.press("\r");
        for _ in 0..20 {
            if terminal.text().contains(wanted) {
                return Some(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        None
    })
    .await;
}

/// The number of the shell in the terminal, which it writes down itself.
async fn number(bench: &Bench, terminal: &mut Terminal) -> i32 {
    let file = bench.bench().join("shell");
    terminal.press("echo $$ >$BENCH/shell.new; mv $BENCH/shell.new $BENCH/shell\r");
    let pid = until("the shell's number", async || std::fs::read_to_string(&file).ok()?.trim().parse().ok()).await;
    std::fs::remove_file(&file).expect("removed");
    pid
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_talks_with_a_shell_beside_a_rank() {
    let (bench, laptop, file, pids) = running("talk").await;
    let mut terminal = open(&laptop, &["shell", "-i", word(&file), "1"]);
    terminal.sees("rank 1 on gpu02, in the container orch-talk-gpu02 of run 20");
    terminal.press("echo \"<$RANK of $WORLD_SIZE at $LOCAL_RANK on $ORCH_HOST, ${MASTER_PORT:+port}, mark=$ORCH_RUN_ID>\"\r");
    terminal.sees("<1 of 2 at 0 on gpu02, port, mark=>");
    // A terminal of its own, with this one's size, now and later.
    terminal.press("stty size; tty | cut -c1-5\r");
    terminal.sees("30 100");
    terminal.resize(90, 20);
    typed_until(&mut terminal, "stty size", "20 90").await;
    // Ctrl-C is the program's there, also where this test itself was started to ignore it. A shell that is about to become another program would lose it: this one waits for it.
    terminal.press("env --default-signal=INT sh -c 'trap \"exit 5\" INT; echo began-$((40 + 2)); while :; do sleep 0.1; done'\r");
    terminal.sees("began-42");
    terminal.press("\x03");
    terminal.press("echo ended-$?\r");
    terminal.sees("ended-5");
    terminal.press("exit 7\r");
    assert_eq!(terminal.ends(), 7, "{}", terminal.text());
    terminal.is_as_before();
    goes_on(bench, &laptop, &file, &pids).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_ends_a_shell_the_terminal_is_as_it_was_and_the_shell_is_gone() {
    let (bench, laptop, file, pids) = running("leave").await;
    let words = ["shell", "-i", word(&file), "gpu01"];
    let begin = || {
        let terminal = open(&laptop, &words);
        terminal.sees("`~.` where nothing answers");
        terminal
    };
    let gone = async |pid: i32| until("the shell is gone", async || (!alive(pid)).then_some(())).await;
    // As ssh's: only at the beginning of a line.
    let mut terminal = begin();
    let pid = number(&bench, &mut terminal).await;
    terminal.press("echo at ~.\r");
    terminal.sees("at ~.");
    terminal.press("~.");
    assert_eq!(terminal.ends(), 129, "{}", terminal.text());
    terminal.is_as_before();
    gone(pid).await;
    // A signal; what the program has done to the screen is undone.
    let mut terminal = begin();
    let pid = number(&bench, &mut terminal).await;
    terminal.press("printf '\\033[?1049h\\033[?25l\\033[?1000h'; echo drawn-$((6 * 7))\r");
    terminal.sees("drawn-42");
    terminal.signal("TERM");
    assert_eq!(terminal.ends(), 143, "{}", terminal.text());
    terminal.is_as_before();
    gone(pid).await;
    // The connection.
    let mut terminal = begin();
    let pid = number(&bench, &mut terminal).await;
    bench.sandbox.drop_connections("gpu01").expect("a host");
    assert_eq!(terminal.ends(), 4, "{}", terminal.text());
    terminal.is_as_before();
    terminal.sees("the connection was lost");
    gone(pid).await;
    // The terminal itself.
    let mut terminal = begin();
    let pid = number(&bench, &mut terminal).await;
    terminal.close();
    assert_eq!(terminal.ends(), 129);
    gone(pid).await;
    // An sshd that gives none.
    bench.faults("gpu01", &Faults { no_terminal: true, ..Faults::default() });
    let mut terminal = open(&laptop, &words);
    assert_eq!(terminal.ends(), 3, "{}", terminal.text());
    terminal.is_as_before();
    terminal.sees("sshd gives this user no terminal");
    goes_on(bench, &laptop, &file, &pids).await;
}

/// Runs a command with a text as its input: its code, and both outputs.
async fn piped(laptop: &Laptop, words: &[&str], input: &str) -> (Option<i32>, String, String) {
    let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_orchestrate"))
        .args(words)
        .env_clear()
        .envs(laptop.environment())
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
async fn without_a_terminal_it_is_a_command_with_input_output_and_status() {
    let (bench, laptop, file, pids) = running("pipe").await;
    let shell =
        |rest: &[&'static str]| -> Vec<String> { ["shell", "-i", word(&file)].iter().chain(rest).map(|word| (*word).to_owned()).collect() };
    let run = async |rest: &[&'static str], input: &str| {
        let words = shell(rest);
        piped(&laptop, &words.iter().map(String::as_str).collect::<Vec<_>>(), input).await
    };
    // A script on the input; what comes after it is not taken away from what it starts.
    let (code, out, err) = run(&["gpu01"], "echo on $ORCH_HOST; echo aside >&2; cat; exit 5\nthe rest\n").await;
    assert_eq!((code, out.as_str(), err.as_str()), (Some(5), "on gpu01\nthe rest\n", "aside\n"));
    // Several words arrive as they are, one is a line.
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
    goes_on(bench, &laptop, &file, &pids).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_nothing_can_be_entered_the_next_command_is_named() {
    let bench = Bench::hosts(2).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("none", &Job::default()));
    let words = |place: &'static str| ["shell", "-i", word(&file), place];
    laptop.run(&words("gpu01")).await.code(3).says("gpu01: there is no container of none").says("` makes one; `orchestrate exec ");
    laptop.run(&words("0")).await.code(3).says("no run of none is known").says("orchestrate ps");
    laptop.run(&words("gpu9")).await.code(2).says("`gpu9` is no host of this inventory").says("the hosts are gpu01, gpu02");
    // A bare host can be entered at any time.
    let bare = bench.inventory("bare", &Job { contained: false, ..Job::default() });
    let home = bench.home(0).canonicalize().expect("there").display().to_string();
    laptop.run(&["shell", "-i", word(&bare), "gpu01", "--", "pwd -P"]).await.code(0).says(&home);
    laptop.run(&["up", "-d", word(&bare)]).await.code(0);
    bench.ranks_up(2).await;
    let line = "echo \"<$RANK $WORLD_SIZE $ORCH_HOST $ORCH_RUN_ID>\"";
    laptop.run(&["shell", "-i", word(&bare), "r1", "--", line]).await.code(0).says("<1 2 gpu02 >");
    laptop.run(&["shell", "-i", word(&bare), "9"]).await.code(3).says("has no rank 9: it has 2");
    laptop.run(&["down", word(&bare)]).await.code(0).says("nothing is left");
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_dashboard_leaves_the_screen_for_a_shell_and_comes_back() {
    let (bench, laptop, file, mut terminal, pids) = attached("visit").await;
    terminal.press("3");
    terminal.sees("3-[Ranks]");
    terminal.press("S");
    // The one under the cursor, whichever was up first.
    let text = terminal.sees("comes back to the dashboard");
    let rank = usize::from(text.contains("rank 1 on gpu02"));
    let host = ["gpu01", "gpu02"][rank];
    assert!(text.contains(&format!("rank {rank} on {host}, in the container orch-visit-{host} of run 20")), "{text}");
    assert!(!text.contains("3-[Ranks]"), "the dashboard has left the screen");
    terminal.press("echo \"<$RANK of $WORLD_SIZE>\" $((6 * 7))\r");
    terminal.sees(&format!("<{rank} of 2> 42"));
    // What happens meanwhile is taken: a terminal that shows something else stops nothing.
    terminal.resize(120, 40);
    typed_until(&mut terminal, "stty size", "40 120").await;
    terminal.press("exit 3\r");
    terminal.sees(&format!("back from {host}: the shell ended with 3"));
    let text = terminal.sees("3-[Ranks]");
    assert!(text.contains("rank 0 of 2 on gpu01") && !text.contains("> 42"), "drawn anew:\n{text}");
    // Once more, from a host; the end of the run does not throw the person out of the dashboard.
    terminal.press("2");
    terminal.sees("2-[Host]");
    terminal.press("S");
    terminal.sees("gpu01, in the container orch-visit-gpu01");
    terminal.press("echo here-$((50 + 5))\r");
    terminal.sees("here-55");
    terminal.press("\x04");
    terminal.sees("back from gpu01");
    terminal.sees("2-[Host]");
    terminal.press("Q");
    assert_eq!(terminal.ends(), 0, "{}", terminal.text());
    terminal.is_as_before();
    // A signal while the shell has the screen.
    let mut terminal = open(&laptop, &["tui", word(&file)]);
    terminal.sees("RUNNING");
    terminal.press("S");
    terminal.sees("comes back to the dashboard");
    let pid = number(&bench, &mut terminal).await;
    terminal.signal("TERM");
    assert_eq!(terminal.ends(), 143, "{}", terminal.text());
    terminal.is_as_before();
    until("the shell is gone", async || (!alive(pid)).then_some(())).await;
    goes_on(bench, &laptop, &file, &pids).await;
}
