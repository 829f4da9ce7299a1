//! The dashboard in a real terminal: driven as a person drives it, and leaving the terminal as it was however it ends.

use std::path::Path;

use crate::support::{Bench, Job, Laptop, until, word};
use crate::terminal::Terminal;

/// A program of these words in a terminal of 100 by 30.
pub(crate) fn open(laptop: &Laptop, words: &[&str]) -> Terminal {
    sized(laptop, words, (100, 30))
}

fn sized(laptop: &Laptop, words: &[&str], size: (u16, u16)) -> Terminal {
    Terminal::start(Path::new(env!("CARGO_BIN_EXE_orchestrate")), words, &laptop.home, &laptop.environment(), size)
}

pub(crate) use crate::signals::lives as alive;

/// A run of two ranks on two hosts that goes on until told, and a dashboard that is attached to it.
pub(crate) async fn attached(name: &str) -> (Bench, Laptop, std::path::PathBuf, Terminal, Vec<i32>) {
    let bench = Bench::hosts(2).await;
    let (mut laptop, file) = (bench.laptop("laptop"), bench.inventory(name, &Job::default()));
    laptop.variables.insert("ORCHESTRATE_REHEARSAL".to_owned(), bench.path().join("rehearsal").display().to_string());
    laptop.run(&["up", "-d", word(&file)]).await.code(0);
    let pids = bench.ranks_up(2).await;
    let terminal = open(&laptop, &["tui", word(&file)]);
    terminal.sees("RUNNING");
    terminal.sees("2h/2r");
    (bench, laptop, file, terminal, pids)
}

/// The ranks go on, and `down` ends them.
pub(crate) async fn goes_on(bench: Bench, laptop: &Laptop, file: &Path, pids: &[i32]) {
    for pid in pids {
        assert!(alive(*pid), "rank with pid {pid} goes on");
    }
    laptop.run(&["down", word(file)]).await.code(0).says("nothing is left");
    bench.done().await;
}

/// What every rank of the driven run says beside its first line.
const TALK: &str = "echo \"step 7 loss 2.5\"; echo \"WARNING: rank $RANK waits\"; echo \"step 8 loss 2.4\"";

/// Walks through all screens and reads of each what only it shows.
fn every_screen(terminal: &mut Terminal) {
    let screens: [(&str, &[&str]); 7] = [
        ("2", &["2-[Host]", "gpu01"]),
        ("3", &["3-[Ranks]", "RANK"]),
        ("4", &["4-[Logs]", "LOG r0"]),
        ("5", &["5-[GPUs]", "UTIL, percent", "gpu02", " g0  util "]),
        ("6", &["6-[Events]", "rank started", "ready"]),
        ("7", &["7-[Problems]", "nothing is wrong"]),
        ("1", &["1-[Overview]", "HOST"]),
    ];
    for (key, wanted) in screens {
        terminal.press(key);
        for part in wanted {
            terminal.sees(part);
        }
    }
    terminal.press("?");
    terminal.sees("tear down: stop and remove everything");
    terminal.press("?");
    terminal.sees_no("tear down: stop and remove everything");
}

/// Searches and filters a log, and takes lines away: to the terminal's clipboard, and to a file.
fn a_log_is_read(terminal: &mut Terminal, laptop: &Laptop) {
    terminal.press("4");
    terminal.sees("rank 0 of 2 on gpu01");
    terminal.sees("step 8 loss 2.4");
    terminal.press("/");
    terminal.press("of 2\r");
    terminal.sees(">rank 0 of 2 on gpu01");
    terminal.press("y");
    terminal.sees("1 line sent to the terminal's clipboard (OSC 52)");
    // The frame comes before the copy.
    terminal.until("a copy", |_| copied(terminal).len() == 1);
    assert_eq!(copied(terminal), ["rank 0 of 2 on gpu01"]);
    // All logs, of which a term about the writer and one about the line leave a single line.
    terminal.press("o");
    terminal.sees("rank [0..1] waits");
    terminal.press("&");
    terminal.press("rank:1 level>=warn\r");
    terminal.until("only what the filter keeps", |text| text.contains("WARNING: rank 1 waits") && !text.contains("step 8"));
    terminal.press("Y");
    terminal.until("a second copy", |_| copied(terminal).len() == 2);
    assert_eq!(copied(terminal)[1], "r1: WARNING: rank 1 waits");
    // The same in a file.
    terminal.press("\x13");
    terminal.sees("1 line saved in ");
    let saved = std::fs::read_dir(laptop.home.join("state/orchestrate/saved")).expect("a folder of what was saved");
    let texts: Vec<String> = saved.map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("text")).collect();
    assert_eq!(texts, ["r1: WARNING: rank 1 waits\n"]);
    // Without the filter all is there again.
    terminal.press("&");
    terminal.press("\x15\r");
    terminal.sees("step 8 loss 2.4");
}

/// The texts that the terminal was asked to take into its clipboard (`OSC 52 ; c ; base64 BEL`).
fn copied(terminal: &Terminal) -> Vec<String> {
    use base64::Engine as _;
    let raw = terminal.raw();
    let codes = raw.split("\x1b]52;c;").skip(1).filter_map(|rest| rest.split_once('\x07'));
    let text = |(code, _)| base64::engine::general_purpose::STANDARD.decode(code).expect("base64");
    codes.map(text).map(|bytes| String::from_utf8(bytes).expect("UTF-8")).collect()
}

/// From another laptop.
async fn comes_back_and_tears_down(bench: &Bench, file: &Path, pids: &[i32]) {
    let other = bench.laptop("other");
    let mut terminal = open(&other, &["tui", word(file)]);
    terminal.until("both ranks run", |text| text.contains("RUNNING") && text.matches(" 1/1 ").count() == 2);
    terminal.press("X");
    let text = terminal.sees("Type drive to confirm:");
    assert!(text.contains("TEAR DOWN THE RUN") && text.contains("2 running ranks"), "{text}");
    // The focus is on Cancel.
    terminal.press("\r");
    terminal.sees_no("Type drive to confirm:");
    assert!(pids.iter().all(|pid| alive(*pid)));
    terminal.press("X");
    terminal.sees("Type drive to confirm:");
    terminal.press("drive");
    terminal.sees("drive_");
    // The answer is dead at first: the key is pressed until it is taken.
    until("it is torn down", async || {
        if terminal.text().contains("Type drive to confirm:") {
            terminal.press("\r");
        }
        (!pids.iter().any(|pid| alive(*pid))).then_some(())
    })
    .await;
    terminal.sees("torn down");
    bench.nothing_left().await;
    // An answer that was given twice has opened another view.
    terminal.press("1");
    terminal.sees("1-[Overview]");
    terminal.press("q");
    assert_eq!(terminal.ends(), 1, "the run did not come to its end: {}", terminal.text());
    terminal.is_as_before();
    terminal.sees("RECAP");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_starts_looks_leaves_comes_back_and_tears_down() {
    let bench = Bench::hosts(2).await;
    // As much as ranks want and any machine has: there is no warning.
    let job = Job { container: "shm_size: 2g\n".to_owned(), ..Job::default() };
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("drive", &job));
    std::fs::write(bench.bench().join("job"), TALK).expect("written");
    let mut terminal = open(&laptop, &["tui", word(&file)]);
    // The plan is shown, and nothing happens until it is asked for.
    terminal.sees("PLAN");
    assert!(bench.left().is_empty(), "{:?}", bench.left());
    terminal.press("U");
    terminal.sees("START drive");
    terminal.press("\r");
    terminal.sees("RUNNING");
    let pids = bench.ranks_up(2).await;
    every_screen(&mut terminal);
    a_log_is_read(&mut terminal, &laptop);
    // The palette: the beginning of a name.
    terminal.press(":");
    terminal.press("ovr");
    terminal.sees("overview");
    terminal.press("\r");
    terminal.sees("1-[Overview]");
    // Leaving says what it does, and leaves the run alone.
    terminal.press("q");
    terminal.sees("Detach: this screen ends, the run goes on");
    terminal.press("d");
    assert_eq!(terminal.ends(), 0, "{}", terminal.text());
    terminal.is_as_before();
    terminal.sees("DETACHED");
    assert!(terminal.text().contains("orchestrate down"), "{}", terminal.text());
    assert!(pids.iter().all(|pid| alive(*pid)));
    comes_back_and_tears_down(&bench, &file, &pids).await;
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_restarted_stopped_and_launched_again() {
    let (bench, _, _, mut terminal, pids) = attached("again").await;
    let run = |text: &str| text.split_whitespace().find(|word| word.starts_with("20")).map(str::to_owned);
    let first = run(&terminal.text());
    assert!(first.is_some(), "{}", terminal.text());
    bench.again();
    terminal.press("R");
    terminal.sees("RESTART THE RUN");
    until("the gang was stopped", async || {
        if terminal.text().contains("RESTART THE RUN") {
            terminal.press("y");
        }
        (!pids.iter().any(|pid| alive(*pid))).then_some(())
    })
    .await;
    terminal.until("a run of its own", |text| text.contains("RUNNING") && run(text) != first);
    let pids = bench.ranks_up(2).await;
    terminal.press("H");
    terminal.sees("STOP THE RUN");
    until("the gang was stopped", async || {
        if terminal.text().contains("STOP THE RUN") {
            terminal.press("y");
        }
        (!pids.iter().any(|pid| alive(*pid))).then_some(())
    })
    .await;
    // What happened can be looked at; then the same once more.
    terminal.sees("U start");
    bench.again();
    terminal.press("U");
    terminal.sees("START again");
    terminal.press("\r");
    bench.ranks_up(2).await;
    terminal.sees("RUNNING");
    bench.end(None, 0);
    terminal.sees("U start");
    terminal.press("q");
    assert_eq!(terminal.ends(), 0, "{}", terminal.text());
    terminal.is_as_before();
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signals_leave_the_terminal_and_the_run_as_they_were() {
    let (bench, laptop, file, terminal, pids) = attached("signal").await;
    let mut first = terminal;
    first.signal("TERM");
    assert_eq!(first.ends(), 143, "{}", first.text());
    first.is_as_before();
    assert!(first.text().contains("orchestrate down"), "{}", first.text());
    let mut second = open(&laptop, &["tui", word(&file)]);
    second.sees("RUNNING");
    second.signal("HUP");
    assert_eq!(second.ends(), 129, "{}", second.text());
    second.is_as_before();
    let mut third = open(&laptop, &["tui", word(&file)]);
    third.sees("RUNNING");
    third.press("\x03");
    assert_eq!(third.ends(), 130, "{}", third.text());
    third.is_as_before();
    goes_on(bench, &laptop, &file, &pids).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminal_that_is_taken_away_ends_the_dashboard_and_not_the_run() {
    let (bench, laptop, file, mut terminal, pids) = attached("gone").await;
    terminal.close();
    assert_eq!(terminal.ends(), 129);
    goes_on(bench, &laptop, &file, &pids).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_leaves_the_terminal_as_it_was_and_says_how_to_go_on() {
    let (bench, laptop, file, terminal, pids) = attached("panic").await;
    let order = bench.path().join("rehearsal");
    let mut terminal = terminal;
    for place in ["task", "screen"] {
        std::fs::write(&order, place).expect("written");
        assert_eq!(terminal.ends(), 70, "{}", terminal.text());
        terminal.is_as_before();
        let text = terminal.text();
        let flat = text.replace('\n', " ");
        assert!(text.contains(&format!("orchestrate broke: rehearsed in the {place}")), "{text}");
        assert!(text.contains("the ranks go on without it") && flat.contains("orchestrate down"), "{text}");
        std::fs::remove_file(&order).expect("removed");
        terminal = open(&laptop, &["tui", word(&file)]);
        terminal.sees("RUNNING");
    }
    terminal.press("Q");
    assert_eq!(terminal.ends(), 0);
    goes_on(bench, &laptop, &file, &pids).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_size_is_drawn_and_a_terminal_that_does_not_know_its_own() {
    let (bench, laptop, file, mut terminal, pids) = attached("sizes").await;
    // A storm; what is drawn last is what the last size can show.
    for (columns, rows) in [(200, 60), (3, 1), (80, 24), (20, 3), (1, 1), (120, 40), (30, 6), (20, 3)] {
        terminal.resize(columns, rows);
    }
    terminal.until("the smallest", |text| text.lines().all(|line| line.chars().count() <= 20) && text.contains("RUNNING"));
    terminal.resize(19, 2);
    terminal.sees("too small");
    terminal.resize(30, 6);
    terminal.sees("nothing is wrong");
    terminal.resize(80, 24);
    terminal.sees("1-[Overview]");
    // A key that comes with a new size is taken as any other.
    for columns in 80..100 {
        let (key, shown) = if columns % 2 == 0 { ("3", "3-[Ranks]") } else { ("1", "1-[Overview]") };
        terminal.resize(columns, 24);
        terminal.press(key);
        terminal.sees(shown);
    }
    terminal.resize(80, 24);
    // Small for a moment in which nobody looked: it has the size of before, and what was cut off is gone.
    terminal.signal("STOP");
    let stat = format!("/proc/{}/stat", terminal.pid());
    let stopped = || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')));
    until("it is stopped", async || stopped().then_some(())).await;
    terminal.resize(20, 3);
    terminal.resize(80, 24);
    assert!(!terminal.text().contains("gpu02"), "{}", terminal.text());
    terminal.signal("CONT");
    terminal.sees("gpu02");
    terminal.press("Q");
    assert_eq!(terminal.ends(), 0);
    terminal.is_as_before();
    let mut unknown = sized(&laptop, &["tui", word(&file)], (0, 0));
    unknown.resize(0, 0);
    until("it is drawn as if on 80 by 24", async || unknown.raw().contains("1-[Overview]").then_some(())).await;
    unknown.press("Q");
    assert_eq!(unknown.ends(), 0);
    goes_on(bench, &laptop, &file, &pids).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_suspended_and_goes_on() {
    let (bench, laptop, file, mut terminal, pids) = attached("stop").await;
    terminal.press("Q");
    assert_eq!(terminal.ends(), 0);
    // A shell with jobs, as the person's own.
    let script = "set -m; \"$0\" \"$@\"; echo \"suspended with $?\"; read -r word; fg >/dev/null; echo \"ended with $?\"";
    let program = env!("CARGO_BIN_EXE_orchestrate");
    let words = ["-c", script, program, "tui", word(&file)];
    let mut shell = Terminal::start(Path::new("/bin/sh"), &words, &laptop.home, &laptop.environment(), (100, 30));
    shell.sees("RUNNING");
    shell.press("\x1a");
    shell.sees("suspended with");
    // The shell waits for a line, so the terminal is its own again.
    shell.is_as_before();
    shell.press("on\r");
    shell.sees("1-[Overview]");
    shell.press("3");
    shell.sees("3-[Ranks]");
    shell.press("Q");
    assert_eq!(shell.ends(), 0);
    assert!(shell.text().contains("ended with 0"), "{}", shell.text());
    shell.is_as_before();
    goes_on(bench, &laptop, &file, &pids).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_only_look_finds_no_key_that_changes_something() {
    let (bench, laptop, file, mut terminal, pids) = attached("look").await;
    terminal.press("Q");
    assert_eq!(terminal.ends(), 0);
    let mut terminal = open(&laptop, &["tui", word(&file), "--readonly", "--ascii", "--theme", "mono"]);
    terminal.sees("RUNNING");
    terminal.press("?");
    let text = terminal.sees("Everywhere");
    assert!(!text.contains("tear down") && !text.contains("kill every rank"), "{text}");
    terminal.press("?XKRHSU:tear");
    terminal.sees("no command is called so");
    let raw = terminal.raw();
    for code in ["\x1b[38;", "\x1b[48;", ";38;5", "\x1b[3m1"] {
        assert!(!raw.contains(code), "{code:?}");
    }
    assert!(terminal.text().is_ascii(), "{}", terminal.text());
    terminal.press("\x1b");
    terminal.sees_no("no command is called so");
    terminal.press("q");
    let text = terminal.sees("Detach: this screen ends");
    assert!(!text.contains("Stop:") && !text.contains("Kill:"), "{text}");
    terminal.press("d");
    assert_eq!(terminal.ends(), 0);
    goes_on(bench, &laptop, &file, &pids).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_answer_of_the_terminal_is_no_key_and_settings_are_obeyed() {
    let (bench, mut laptop, file, mut terminal, pids) = attached("ask").await;
    // It was asked, waited for no longer than it takes to draw, and answers now; a slash of the answer would open the search.
    assert!(terminal.raw().contains("\x1b]11;?"));
    terminal.press("4");
    terminal.sees("4-[Logs]");
    terminal.press("\x1b]11;rgb:1212/3434/5656\x1b\\");
    terminal.press("3");
    terminal.sees("3-[Ranks]");
    terminal.press("Q");
    assert_eq!(terminal.ends(), 0);
    // Settings: another key for help, and what is wrong with them.
    let config = laptop.home.join("config");
    laptop.variables.insert("XDG_CONFIG_HOME".to_owned(), config.display().to_string());
    std::fs::create_dir_all(config.join("orchestrate")).expect("made");
    let settings = config.join("orchestrate/config.toml");
    std::fs::write(&settings, "theme = \"light\"\n[keys]\nhelp = \"f1\"\nranks = \"?\"\n").expect("written");
    let mut terminal = open(&laptop, &["tui", word(&file)]);
    terminal.sees("RUNNING");
    assert!(!terminal.raw().contains("\x1b]11;?"), "who has chosen is not asked");
    terminal.press("?");
    terminal.sees("3-[Ranks]");
    terminal.press("Q");
    assert_eq!(terminal.ends(), 0);
    std::fs::write(&settings, "theme = \"light\"\n[keys]\nhelp = \"T\"\n").expect("written");
    let mut terminal = open(&laptop, &["tui", word(&file)]);
    assert_eq!(terminal.ends(), 2);
    let flat = terminal.text().replace('\n', "");
    assert!(flat.contains("config.toml:3:8: `T` means `theme` already"), "{flat}");
    terminal.is_as_before();
    goes_on(bench, &laptop, &file, &pids).await;
}
