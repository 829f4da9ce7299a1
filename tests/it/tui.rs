//! The dashboard in a real terminal, operated by keys; however it ends, the terminal is restored.

use std::path::Path;

use crate::support::{JobSpec, Laptop, SandboxFixture, path_str, wait_until};
use crate::terminal::PtyTerminal;

/// Starts the program with these arguments in a terminal of 100 by 30.
pub(crate) fn open_terminal(laptop: &Laptop, words: &[&str]) -> PtyTerminal {
    open_sized_terminal(laptop, words, (100, 30))
}

fn open_sized_terminal(laptop: &Laptop, words: &[&str], size: (u16, u16)) -> PtyTerminal {
    PtyTerminal::start(Path::new(env!("CARGO_BIN_EXE_orchestrate")), words, &laptop.home, &laptop.terminal_env(), size)
}

pub(crate) use crate::signals::is_alive as alive;

/// A run of two ranks on two hosts that runs until it is ended, and an attached dashboard.
pub(crate) async fn start_attached_dashboard(name: &str) -> (SandboxFixture, Laptop, std::path::PathBuf, PtyTerminal, Vec<i32>) {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (mut laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory(name, &JobSpec::default()));
    laptop.env_vars.insert("ORCHESTRATE_REHEARSAL".to_owned(), fixture.root().join("rehearsal").display().to_string());
    laptop.run(&["up", "-d", path_str(&file)]).await.assert_exit_code(0);
    let pids = fixture.wait_for_ranks(2).await;
    let terminal = open_terminal(&laptop, &["tui", path_str(&file)]);
    terminal.wait_for_text("RUNNING");
    terminal.wait_for_text("2 hosts  2/2 ranks");
    (fixture, laptop, file, terminal, pids)
}

/// The ranks still run, and `down` ends them.
pub(crate) async fn assert_ranks_alive_then_down(fixture: SandboxFixture, laptop: &Laptop, file: &Path, pids: &[i32]) {
    for pid in pids {
        assert!(alive(*pid), "rank with pid {pid} continues");
    }
    laptop.run(&["down", path_str(file)]).await.assert_exit_code(0).assert_contains("nothing is left");
    fixture.assert_clean_and_stop().await;
}

/// What every rank prints after its first line.
const CHATTY_PAYLOAD: &str = "echo \"step 7 loss 2.5\"; echo \"WARNING: rank $RANK waits\"; echo \"step 8 loss 2.4\"";

/// Opens every screen and waits for a text that only it shows.
fn visit_every_pane(terminal: &mut PtyTerminal) {
    let screens: [(&str, &[&str]); 7] = [
        ("2", &["2-[Host]", "gpu01"]),
        ("3", &["3-[Ranks]", "RANK"]),
        ("4", &["4-[Logs]", "LOG r0"]),
        ("5", &["5-[GPUs]", "UTIL, %", "gpu02", " g0  util "]),
        ("6", &["6-[Events]", "rank started", "ready"]),
        ("7", &["7-[Problems]", "no problems"]),
        ("1", &["1-[Overview]", "gpu01 · master", "log · all ranks"]),
    ];
    for (key, wanted) in screens {
        terminal.press(key);
        for part in wanted {
            terminal.wait_for_text(part);
        }
    }
    terminal.press("?");
    terminal.wait_for_text("tear down: stop and remove everything");
    terminal.press("?");
    terminal.wait_for_no_text("tear down: stop and remove everything");
}

/// Searches and filters a log, and copies lines to the terminal's clipboard and to a file.
fn search_and_copy_log(terminal: &mut PtyTerminal, laptop: &Laptop) {
    terminal.press("4");
    terminal.wait_for_text("rank 0 of 2 on gpu01");
    terminal.wait_for_text("step 8 loss 2.4");
    terminal.press("/");
    terminal.press("of 2\r");
    terminal.wait_for_text(">rank 0 of 2 on gpu01");
    terminal.press("y");
    terminal.wait_for_text("1 line sent to the terminal (OSC 52)");
    // The frame comes before the copy.
    terminal.wait_until("a copy", |_| clipboard_texts(terminal).len() == 1);
    assert_eq!(clipboard_texts(terminal), ["rank 0 of 2 on gpu01"]);
    // All logs; a term for the writer and one for the line leave a single line.
    terminal.press("o");
    terminal.wait_for_text("rank [0..1] waits");
    terminal.press("&");
    terminal.press("rank:1 level>=warn\r");
    terminal.wait_until("only what the filter keeps", |text| text.contains("WARNING: rank 1 waits") && !text.contains("step 8"));
    terminal.press("Y");
    terminal.wait_until("a second copy", |_| clipboard_texts(terminal).len() == 2);
    assert_eq!(clipboard_texts(terminal)[1], "r1: WARNING: rank 1 waits");
    // The same line, saved to a file.
    terminal.press("\x13");
    terminal.wait_for_text("1 line saved to ");
    let saved = std::fs::read_dir(laptop.home.join("state/orchestrate/saved")).expect("a folder of what was saved");
    let texts: Vec<String> = saved.map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("text")).collect();
    assert_eq!(texts, ["r1: WARNING: rank 1 waits\n"]);
    // Without the filter, all lines are back.
    terminal.press("&");
    terminal.press("\x15\r");
    terminal.wait_for_text("step 8 loss 2.4");
}

/// The texts that the program copied to the terminal's clipboard (`OSC 52 ; c ; base64 BEL`).
fn clipboard_texts(terminal: &PtyTerminal) -> Vec<String> {
    use base64::Engine as _;
    let raw = terminal.raw_text();
    let codes = raw.split("\x1b]52;c;").skip(1).filter_map(|rest| rest.split_once('\x07'));
    let text = |(code, _)| base64::engine::general_purpose::STANDARD.decode(code).expect("base64");
    codes.map(text).map(|bytes| String::from_utf8(bytes).expect("UTF-8")).collect()
}

/// From another laptop.
async fn reattach_and_tear_down(fixture: &SandboxFixture, file: &Path, pids: &[i32]) {
    let other = fixture.new_laptop("other");
    let mut terminal = open_terminal(&other, &["tui", path_str(file)]);
    terminal.wait_until("both ranks run", |text| text.contains("RUNNING") && text.matches(" 1/1 ").count() == 2);
    terminal.press("X");
    let text = terminal.wait_for_text("Type drive to confirm:");
    assert!(text.contains("TEAR DOWN THE RUN") && text.contains("2 running ranks"), "{text}");
    // The focus is on Cancel.
    terminal.press("\r");
    terminal.wait_for_no_text("Type drive to confirm:");
    assert!(pids.iter().all(|pid| alive(*pid)));
    terminal.press("X");
    terminal.wait_for_text("Type drive to confirm:");
    terminal.press("drive");
    terminal.wait_for_text("drive_");
    // The answer is disabled at first: the key is pressed until it is accepted.
    wait_until("it is torn down", async || {
        if terminal.screen_text().contains("Type drive to confirm:") {
            terminal.press("\r");
        }
        (!pids.iter().any(|pid| alive(*pid))).then_some(())
    })
    .await;
    terminal.wait_for_text("torn down");
    fixture.assert_no_leftovers().await;
    // A key that was pressed twice has opened another view.
    terminal.press("1");
    terminal.wait_for_text("1-[Overview]");
    terminal.press("q");
    assert_eq!(terminal.wait_for_exit(), 1, "the run did not come to its end: {}", terminal.screen_text());
    terminal.assert_restored();
    terminal.wait_for_text("RECAP");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dashboard_session_from_start_to_tear_down() {
    let fixture = SandboxFixture::with_hosts(2).await;
    // A limit that suffices and that every machine allows, so there is no warning.
    let job = JobSpec { container: "shm_size: 2g\n".to_owned(), ..JobSpec::default() };
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("drive", &job));
    std::fs::write(fixture.control_dir().join("job"), CHATTY_PAYLOAD).expect("written");
    let mut terminal = open_terminal(&laptop, &["tui", path_str(&file)]);
    // The plan is shown, and nothing starts until the user confirms it.
    terminal.wait_for_text("PLAN");
    assert!(fixture.leftovers().is_empty(), "{:?}", fixture.leftovers());
    terminal.press("U");
    terminal.wait_for_text("START drive");
    terminal.press("\r");
    terminal.wait_for_text("RUNNING");
    let pids = fixture.wait_for_ranks(2).await;
    visit_every_pane(&mut terminal);
    search_and_copy_log(&mut terminal, &laptop);
    // The palette accepts the beginning of a name.
    terminal.press(":");
    terminal.press("ovr");
    terminal.wait_for_text("overview");
    terminal.press("\r");
    terminal.wait_for_text("1-[Overview]");
    // The leave dialog says what leaving does; the run continues.
    terminal.press("q");
    terminal.wait_for_text("Detach: leave the dashboard, the run continues");
    terminal.press("d");
    assert_eq!(terminal.wait_for_exit(), 0, "{}", terminal.screen_text());
    terminal.assert_restored();
    terminal.wait_for_text("DETACHED");
    assert!(terminal.screen_text().contains("orchestrate down"), "{}", terminal.screen_text());
    assert!(pids.iter().all(|pid| alive(*pid)));
    reattach_and_tear_down(&fixture, &file, &pids).await;
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dashboard_restarts_stops_and_relaunches() {
    let (fixture, _, _, mut terminal, pids) = start_attached_dashboard("again").await;
    let run = |text: &str| text.split_whitespace().find(|word| word.starts_with("20")).map(str::to_owned);
    let first = run(&terminal.screen_text());
    assert!(first.is_some(), "{}", terminal.screen_text());
    fixture.clear_control_files();
    terminal.press("R");
    terminal.wait_for_text("RESTART THE RUN");
    wait_until("the gang was stopped", async || {
        if terminal.screen_text().contains("RESTART THE RUN") {
            terminal.press("y");
        }
        (!pids.iter().any(|pid| alive(*pid))).then_some(())
    })
    .await;
    terminal.wait_until("a run of its own", |text| text.contains("RUNNING") && run(text) != first);
    let pids = fixture.wait_for_ranks(2).await;
    terminal.press("H");
    terminal.wait_for_text("STOP THE RUN");
    wait_until("the gang was stopped", async || {
        if terminal.screen_text().contains("STOP THE RUN") {
            terminal.press("y");
        }
        (!pids.iter().any(|pid| alive(*pid))).then_some(())
    })
    .await;
    // The ended run stays on the screen; then it is launched again.
    terminal.wait_for_text("U start");
    fixture.clear_control_files();
    terminal.press("U");
    terminal.wait_for_text("START again");
    terminal.press("\r");
    fixture.wait_for_ranks(2).await;
    terminal.wait_for_text("RUNNING");
    fixture.end_ranks(None, 0);
    terminal.wait_for_text("U start");
    terminal.press("q");
    assert_eq!(terminal.wait_for_exit(), 0, "{}", terminal.screen_text());
    terminal.assert_restored();
    fixture.assert_clean_and_stop().await;
}

/// `up` with the dashboard stays open after a failure: the dashboard shows the cause, and leaving gives the run's exit code.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failure_of_up_stays_on_the_dashboard() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("stays", &JobSpec::default()));
    let mut terminal = open_terminal(&laptop, &["up", "--progress", "tui", path_str(&file)]);
    fixture.wait_for_ranks(2).await;
    terminal.wait_for_text("RUNNING");
    fixture.end_ranks(Some(1), 3);
    terminal.wait_for_text("FAILED");
    terminal.wait_for_text("rank 1 on");
    terminal.wait_for_text("U start");
    terminal.wait_for_no_text("HOST  stop");
    terminal.press("q");
    assert_eq!(terminal.wait_for_exit(), 1, "{}", terminal.screen_text());
    terminal.assert_restored();
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signals_restore_terminal_and_keep_run() {
    let (fixture, laptop, file, terminal, pids) = start_attached_dashboard("signal").await;
    let mut first = terminal;
    first.send_signal("TERM");
    assert_eq!(first.wait_for_exit(), 143, "{}", first.screen_text());
    first.assert_restored();
    assert!(first.screen_text().contains("orchestrate down"), "{}", first.screen_text());
    let mut second = open_terminal(&laptop, &["tui", path_str(&file)]);
    second.wait_for_text("RUNNING");
    second.send_signal("HUP");
    assert_eq!(second.wait_for_exit(), 129, "{}", second.screen_text());
    second.assert_restored();
    let mut third = open_terminal(&laptop, &["tui", path_str(&file)]);
    third.wait_for_text("RUNNING");
    third.press("\x03");
    assert_eq!(third.wait_for_exit(), 130, "{}", third.screen_text());
    third.assert_restored();
    assert_ranks_alive_then_down(fixture, &laptop, &file, &pids).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_terminal_ends_dashboard_not_run() {
    let (fixture, laptop, file, mut terminal, pids) = start_attached_dashboard("gone").await;
    terminal.hang_up();
    assert_eq!(terminal.wait_for_exit(), 129);
    assert_ranks_alive_then_down(fixture, &laptop, &file, &pids).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panic_restores_terminal_and_gives_advice() {
    let (fixture, laptop, file, terminal, pids) = start_attached_dashboard("panic").await;
    let order = fixture.root().join("rehearsal");
    let mut terminal = terminal;
    for location in ["task", "screen"] {
        std::fs::write(&order, location).expect("written");
        assert_eq!(terminal.wait_for_exit(), 70, "{}", terminal.screen_text());
        terminal.assert_restored();
        let text = terminal.screen_text();
        let flat = text.replace('\n', " ");
        assert!(text.contains(&format!("orchestrate crashed: rehearsed in the {location}")), "{text}");
        assert!(text.contains("the ranks keep running") && flat.contains("orchestrate down"), "{text}");
        std::fs::remove_file(&order).expect("removed");
        terminal = open_terminal(&laptop, &["tui", path_str(&file)]);
        terminal.wait_for_text("RUNNING");
    }
    terminal.press("Q");
    assert_eq!(terminal.wait_for_exit(), 0);
    assert_ranks_alive_then_down(fixture, &laptop, &file, &pids).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dashboard_draws_at_any_size() {
    let (fixture, laptop, file, mut terminal, pids) = start_attached_dashboard("sizes").await;
    // Many resizes; the last frame fits the last size.
    for (columns, rows) in [(200, 60), (3, 1), (80, 24), (20, 3), (1, 1), (120, 40), (30, 6), (20, 3)] {
        terminal.resize(columns, rows);
    }
    terminal.wait_until("the smallest", |text| text.lines().all(|line| line.chars().count() <= 20) && text.contains("RUNNING"));
    terminal.resize(19, 2);
    terminal.wait_for_text("too small");
    terminal.resize(30, 6);
    terminal.wait_for_text("no problems");
    terminal.resize(80, 24);
    terminal.wait_for_text("1-[Overview]");
    // A key that arrives with a resize is handled like any other.
    for columns in 80..100 {
        let (key, shown) = if columns % 2 == 0 { ("3", "3-[Ranks]") } else { ("1", "1-[Overview]") };
        terminal.resize(columns, 24);
        terminal.press(key);
        terminal.wait_for_text(shown);
    }
    terminal.resize(80, 24);
    // A brief shrink between two frames: the cut-off part is redrawn at the old size.
    terminal.send_signal("STOP");
    let stat = format!("/proc/{}/stat", terminal.pid());
    let stopped = || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')));
    wait_until("it is stopped", async || stopped().then_some(())).await;
    terminal.resize(20, 3);
    terminal.resize(80, 24);
    assert!(!terminal.screen_text().contains("gpu02"), "{}", terminal.screen_text());
    terminal.send_signal("CONT");
    terminal.wait_for_text("gpu02");
    terminal.press("Q");
    assert_eq!(terminal.wait_for_exit(), 0);
    terminal.assert_restored();
    let mut unknown = open_sized_terminal(&laptop, &["tui", path_str(&file)], (0, 0));
    unknown.resize(0, 0);
    wait_until("it is drawn as if on 80 by 24", async || unknown.raw_text().contains("1-[Overview]").then_some(())).await;
    unknown.press("Q");
    assert_eq!(unknown.wait_for_exit(), 0);
    assert_ranks_alive_then_down(fixture, &laptop, &file, &pids).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suspended_dashboard_resumes() {
    let (fixture, laptop, file, mut terminal, pids) = start_attached_dashboard("stop").await;
    terminal.press("Q");
    assert_eq!(terminal.wait_for_exit(), 0);
    // An interactive shell with job control.
    let script = "set -m; \"$0\" \"$@\"; echo \"suspended with $?\"; read -r word; fg >/dev/null; echo \"ended with $?\"";
    let program = env!("CARGO_BIN_EXE_orchestrate");
    let words = ["-c", script, program, "tui", path_str(&file)];
    let mut shell = PtyTerminal::start(Path::new("/bin/sh"), &words, &laptop.home, &laptop.terminal_env(), (100, 30));
    shell.wait_for_text("RUNNING");
    shell.press("\x1a");
    shell.wait_for_text("suspended with");
    // The shell waits for a line, so it has reset the terminal.
    shell.assert_restored();
    shell.press("on\r");
    shell.wait_for_text("1-[Overview]");
    shell.press("3");
    shell.wait_for_text("3-[Ranks]");
    shell.press("Q");
    assert_eq!(shell.wait_for_exit(), 0);
    assert!(shell.screen_text().contains("ended with 0"), "{}", shell.screen_text());
    shell.assert_restored();
    assert_ranks_alive_then_down(fixture, &laptop, &file, &pids).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readonly_dashboard_offers_no_mutating_keys() {
    let (fixture, laptop, file, mut terminal, pids) = start_attached_dashboard("look").await;
    terminal.press("Q");
    assert_eq!(terminal.wait_for_exit(), 0);
    let mut terminal = open_terminal(&laptop, &["tui", path_str(&file), "--readonly", "--ascii", "--theme", "mono"]);
    terminal.wait_for_text("RUNNING");
    terminal.press("?");
    let text = terminal.wait_for_text("Everywhere");
    assert!(!text.contains("tear down") && !text.contains("kill every rank"), "{text}");
    terminal.press("?XKRHSU:tear");
    terminal.wait_for_text("no such command");
    let raw = terminal.raw_text();
    for code in ["\x1b[38;", "\x1b[48;", ";38;5", "\x1b[3m1"] {
        assert!(!raw.contains(code), "{code:?}");
    }
    assert!(terminal.screen_text().is_ascii(), "{}", terminal.screen_text());
    terminal.press("\x1b");
    terminal.wait_for_no_text("no such command");
    terminal.press("q");
    let text = terminal.wait_for_text("Detach: leave the dashboard");
    assert!(!text.contains("Stop:") && !text.contains("Kill:"), "{text}");
    terminal.press("d");
    assert_eq!(terminal.wait_for_exit(), 0);
    assert_ranks_alive_then_down(fixture, &laptop, &file, &pids).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_terminal_reply_is_no_key() {
    let (fixture, mut laptop, file, mut terminal, pids) = start_attached_dashboard("ask").await;
    // The reply arrives after the first frame; a slash in it must not open the search.
    assert!(terminal.raw_text().contains("\x1b]11;?"));
    terminal.press("4");
    terminal.wait_for_text("4-[Logs]");
    terminal.press("\x1b]11;rgb:1212/3434/5656\x1b\\");
    terminal.press("3");
    terminal.wait_for_text("3-[Ranks]");
    terminal.press("Q");
    assert_eq!(terminal.wait_for_exit(), 0);
    // Settings: another key for help, and an invalid entry.
    let config = laptop.home.join("config");
    laptop.env_vars.insert("XDG_CONFIG_HOME".to_owned(), config.display().to_string());
    std::fs::create_dir_all(config.join("orchestrate")).expect("made");
    let settings = config.join("orchestrate/config.toml");
    std::fs::write(&settings, "theme = \"light\"\n[keys]\nhelp = \"f1\"\nranks = \"?\"\n").expect("written");
    let mut terminal = open_terminal(&laptop, &["tui", path_str(&file)]);
    terminal.wait_for_text("RUNNING");
    assert!(!terminal.raw_text().contains("\x1b]11;?"), "the terminal is not queried if a theme is set");
    terminal.press("?");
    terminal.wait_for_text("?-[Ranks]");
    terminal.press("Q");
    assert_eq!(terminal.wait_for_exit(), 0);
    std::fs::write(&settings, "theme = \"light\"\n[keys]\nhelp = \"T\"\n").expect("written");
    let mut terminal = open_terminal(&laptop, &["tui", path_str(&file)]);
    assert_eq!(terminal.wait_for_exit(), 2);
    let flat = terminal.screen_text().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains(":3:8: `T` is already bound to `theme`"), "{flat}");
    terminal.assert_restored();
    assert_ranks_alive_then_down(fixture, &laptop, &file, &pids).await;
}
