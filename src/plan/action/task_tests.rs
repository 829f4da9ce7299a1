//! The wrapper in a real shell, and what its answers mean.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use super::*;
use crate::inventory::TaskCommand;
use crate::plan::action::Issue;
use crate::plan::action::launch::StopRanks;
use crate::plan::test_program::write_program;

fn host_task(command: TaskCommand) -> HostTask {
    HostTask { number: 3, name: "a task".to_owned(), command, timeout: Duration::from_secs(30), ..HostTask::default() }
}

fn script(text: &str) -> TaskCommand {
    TaskCommand { script: text.to_owned(), ..TaskCommand::default() }
}

/// A bare host's run with the files of one task.
struct TaskHost {
    dir: tempfile::TempDir,
    run: RunTask,
}

impl TaskHost {
    /// The run's id is its own, as everywhere: a stop ends what bears the id in its environment, wherever it runs.
    fn new(mut task: HostTask) -> TaskHost {
        let dir = tempfile::Builder::new().prefix("run").tempdir().expect("a folder");
        let run_id = dir.path().file_name().expect("a name").to_string_lossy().into_owned();
        task.run_env.insert("ORCH_RUN_ID".to_owned(), run_id.clone());
        let context = HostContext { run_id, ..HostContext::new("n", "gpu01", dir.path().display().to_string()) };
        for each in [context.private_dir(), context.run_dir(), context.output_dir()] {
            std::fs::create_dir_all(each).expect("made");
        }
        let fixed = [
            ("lib", include_str!("../../../assets/lib.sh")),
            ("pipe", include_str!("../../../assets/pipe.sh")),
            ("append", include_str!("../../../assets/append.sh")),
            ("task", include_str!("../../../assets/task.sh")),
            ("reap", include_str!("../../../assets/reap.sh")),
            ("settings", ""),
        ];
        let files = fixed.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned())).chain(task.files());
        for (name, text) in files {
            std::fs::write(format!("{}/{name}", context.run_dir()), text).expect("written");
        }
        let run = RunTask { context, task, secrets: Vec::new(), scope: SystemdScope::Inherited, registered: Vec::new() };
        TaskHost { dir, run }
    }

    /// Start and wait, as the executor has them.
    fn answer(&self) -> CommandOutput {
        let started = self.output_of(&self.run.start_command());
        if started.is_success() { self.output_of(&self.run.wait_command()) } else { started }
    }

    fn output_of(&self, command: &RemoteCommand) -> CommandOutput {
        let home = self.dir.path();
        let mut shell = Command::new("/bin/sh");
        let path = format!("{}/bin:{}", home.display(), std::env::var("PATH").unwrap_or_default());
        let out = shell
            .args(["-c", &command.script])
            .env("HOME", home)
            .env("PATH", path)
            .current_dir(home)
            .stdin(Stdio::null())
            .output()
            .expect("a shell");
        CommandOutput { exit_code: out.status.code().unwrap_or(-1), stdout: out.stdout, stderr: out.stderr, ..CommandOutput::default() }
    }

    fn result(&self) -> ActionResult {
        self.run.judge(&self.answer())
    }

    fn stop(&self, grace: Option<Duration>) -> CommandOutput {
        let context = self.run.context.clone();
        self.output_of(&StopRanks { context, grace, by_request: false, restore_scripts: false }.command())
    }

    fn log(&self) -> String {
        std::fs::read_to_string(format!("{}task-3.log", self.run.context.run_file_prefix())).expect("its log")
    }
}

fn done(changed: bool) -> ActionResult {
    ActionResult::Done { note: String::new(), changed, warning: String::new() }
}

#[test]
fn task_runs_once_with_its_environment_and_directory() {
    let host = TaskHost::new(host_task(TaskCommand {
        chdir: Some("~/work dir".to_owned()),
        env: BTreeMap::from([("X".to_owned(), "it's $HOME\n2".to_owned())]),
        ..script("echo \"$PWD|$X|$ORCH_RUN_ID|${BASH_VERSION:+bash}\"; read -r line || echo no input; echo >>ran; exit 0\n")
    }));
    std::fs::create_dir(host.dir.path().join("work dir")).expect("made");
    assert_eq!(host.result(), done(true));
    assert_eq!(host.log(), format!("{}/work dir|it's $HOME\n2|{}|bash\nno input\n", host.dir.path().display(), host.run.context.run_id));
    // Another try after a lost connection finds the same end, and starts nothing.
    assert_eq!(host.result(), done(true));
    assert_eq!(std::fs::read_to_string(host.dir.path().join("work dir/ran")).expect("it ran"), "\n");
}

#[test]
fn variables_of_any_name_belong_to_the_script() {
    let names = ["R", "F", "n", "base", "word", "signaled", "mask", "dir", "timeout", "tries", "delay", "register", "rc", "try"];
    let all = |prefix: &str| names.map(|name| (name.to_owned(), format!("{prefix}{name}")));
    let (text, expected): (String, String) = names.map(|name| (format!("${name} "), format!("of{name} "))).into_iter().unzip();
    let mut host = TaskHost::new(host_task(script(&format!("echo \"{text}\""))));
    host.run.registered = all("of").to_vec();
    assert_eq!((host.result(), host.log()), (done(true), expected.clone() + "\n"));
    let command = TaskCommand { env: all("of").into(), ..script(&format!("echo \"{text}\"")) };
    let mut host = TaskHost::new(host_task(command));
    host.run.registered = all("not ").to_vec();
    assert_eq!((host.result(), host.log()), (done(true), expected + "\n"), "the task's own variables win");
}

#[test]
fn creates_and_unless_skip_a_task() {
    let creates = |pattern: &str, text: &str| TaskCommand { creates: Some(pattern.to_owned()), ..script(text) };
    let host = TaskHost::new(host_task(creates("~/dist dir/x-*.whl", "false")));
    std::fs::create_dir(host.dir.path().join("dist dir")).expect("made");
    std::fs::write(host.dir.path().join("dist dir/x-1.whl"), "").expect("written");
    assert_eq!(host.result(), ActionResult::Skipped("~/dist dir/x-*.whl exists".to_owned()));
    // Only the pattern's characters are special.
    let hostile = TaskHost::new(host_task(creates("$(touch pwned)`touch pwned`;touch pwned*", "true")));
    assert!(matches!(hostile.result(), ActionResult::Done { warning, .. } if warning.contains("nothing matches its `creates:")));
    assert!(!hostile.dir.path().join("pwned").exists());
    let unless = |unless: &str, text: &str| TaskCommand { unless: Some(unless.to_owned()), ..script(text) };
    assert_eq!(TaskHost::new(host_task(unless("[[ a == a ]]", "false"))).result(), ActionResult::Skipped("`unless` succeeded".to_owned()));
    let needed = TaskHost::new(host_task(unless("echo not yet; false", "echo ran")));
    assert_eq!((needed.result(), needed.log().as_str()), (done(true), "ran\n"));
}

#[test]
fn failures_are_reported_with_their_last_line() {
    let failed = |task: HostTask| match TaskHost::new(task).result() {
        ActionResult::Failed(Issue { message, .. }) => message,
        other => panic!("{other:?}"),
    };
    assert_eq!(failed(host_task(script("echo first; echo why >&2; exit 3"))), "exit 3; last line: why");
    assert_eq!(failed(host_task(script("exit 137"))), "signal 9 (KILL)");
    let dir = TaskCommand { chdir: Some("/no/such/dir".to_owned()), ..script("true") };
    assert_eq!(failed(host_task(dir)), "it could not start: no directory /no/such/dir");
    let slow = HostTask { timeout: Duration::from_millis(900), ..host_task(script("echo begun; sleep 60")) };
    assert_eq!(failed(slow), "not done after 1 s; last line: begun");
    let tried = HostTask { retries: 1, ..host_task(script("echo again; exit 1")) };
    assert_eq!(failed(tried), "exit 1 (2 tries); last line: again");
    // Bash's own errors are equal on all hosts: without the path of the script.
    let missing = failed(host_task(script("true\nno-such-program")));
    assert_eq!(missing, "exit 127; last line: line 2: no-such-program: command not found");
}

#[test]
fn hint_of_a_failed_task_names_its_cause() {
    let hint = |text: &str| match TaskHost::new(host_task(script(text))).result() {
        ActionResult::Failed(Issue { hint, .. }) => hint,
        other => panic!("{other:?}"),
    };
    assert!(hint("printf 'Proceed? [y/N] '; read -r answer || exit 1").contains("a task has no terminal"));
    assert!(hint("exec 3</dev/tty").contains("a task has no terminal"));
    assert!(!hint("echo broken; exit 1").contains("terminal"));
    assert!(hint("no-such-program").starts_with("install the program there"));
}

#[test]
fn output_without_end_is_bounded() {
    let host = TaskHost::new(host_task(script("yes | head -c 300000; echo end")));
    let pipe = format!("log_max=100000\n{}", include_str!("../../../assets/pipe.sh"));
    std::fs::write(format!("{}/pipe", host.run.context.run_dir()), pipe).expect("written");
    let answer = host.answer();
    assert_eq!(host.run.judge(&answer), done(true));
    assert!(answer.stdout.len() < TAIL_BYTES + 200, "only the log's end is fetched to judge it");
    let prefix = host.run.context.run_file_prefix();
    let read = |end: &str| std::fs::read_to_string(format!("{prefix}task-3.{end}")).unwrap_or_default();
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while !std::path::Path::new(&format!("{prefix}task-3.end")).exists() && std::time::Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(read("log").len(), 100_000);
    assert!(read("lost").starts_with("max 100000 200004 200004\n"), "{}", read("lost").trim_end());
}

#[test]
fn retries_end_with_the_first_success() {
    let host = TaskHost::new(HostTask { retries: 5, ..host_task(script("echo >>tries; test $(wc -l <tries) = 2")) });
    assert_eq!(host.result(), done(true));
    assert_eq!(host.log(), "orchestrate: status 1; try 2 of 6 follows\n");
}

/// Like busybox's: the command takes its place.
const TIMEOUT_WITHOUT_A_GROUP: &str = "#!/bin/sh
[ \"$1\" = -k ] && shift 2
limit=$1; shift
(sleep \"$limit\"; kill -TERM $$) >/dev/null 2>&1 &
exec \"$@\"
";

#[test]
fn no_process_of_a_try_survives_into_the_next() {
    for (timeout_program, end) in
        [(None, "exit 1"), (None, "wait"), (Some(TIMEOUT_WITHOUT_A_GROUP), "exit 1"), (Some(TIMEOUT_WITHOUT_A_GROUP), "wait")]
    {
        let text = format!(
            "[ ! -e \"$HOME/pid\" ] || kill -0 $(cat \"$HOME/pid\") || exit 0\n\
             [ ! -e \"$HOME/pid\" ] || case $(ps -o stat= -p $(cat \"$HOME/pid\")) in Z*) exit 0 ;; esac\n\
             sleep 300 >/dev/null & echo $! >\"$HOME/pid\"\n{end}\n"
        );
        let host = TaskHost::new(HostTask { retries: 1, timeout: Duration::from_secs(2), ..host_task(script(&text)) });
        if let Some(program) = timeout_program {
            let bin = host.dir.path().join("bin");
            std::fs::create_dir(&bin).expect("made");
            write_program(&bin.join("timeout"), program);
        }
        assert_eq!(host.result(), done(true), "{timeout_program:?} {end}: {}", host.log());
    }
}

#[test]
fn registered_value_is_one_clean_line() {
    let register = |text: &str| {
        let host = TaskHost::new(HostTask { register: Some("V".to_owned()), ..host_task(script(text)) });
        let answer = host.answer();
        (host.run.judge(&answer), host.run.registered_value(&answer))
    };
    let value = |text: &str| Some(("V".to_owned(), text.to_owned()));
    assert_eq!(register("echo noise >&2; printf 'grün $(x)\\n'"), (done(false), value("grün $(x)")));
    assert_eq!(register("true"), (done(false), value("")));
    assert_eq!(register("yes | head -c 100000; echo").1, None);
    assert_eq!(register("printf 'a\\tb'").1, None);
    assert!(matches!(register("echo 1; exit 4"), (ActionResult::Failed(_), None)));
    assert_eq!(register("echo before; sleep 60 & echo done >&2"), (done(false), value("before")));
}

#[test]
fn value_that_is_not_whole_fails_the_task() {
    let host = TaskHost::new(HostTask { register: Some("V".to_owned()), ..host_task(script("cat >/dev/null; sleep 0.2")) });
    // Nothing can be written under this name.
    std::fs::create_dir(host.run.context.run_file_prefix() + "task-3.value").expect("made");
    let message = |result| if let ActionResult::Failed(Issue { message, .. }) = result { message } else { String::new() };
    assert!(message(host.result()).starts_with("its output could not be kept"));
    let result = |rest: &str| {
        let stdout = format!("{}.task-3.rc 0 1.5 ran{rest}\nlog\n", host.run.context.run_id).into_bytes();
        let output = CommandOutput { stdout, ..CommandOutput::default() };
        (message(host.run.judge(&output)), host.run.registered_value(&output).map(|(_, value)| value))
    };
    let unread = || ("its output cannot be registered: it could not be read".to_owned(), None);
    assert_eq!(result(" 2\nvalue 6162"), (String::new(), Some("ab".to_owned())));
    assert_eq!(result(" 0\nvalue "), (String::new(), Some(String::new())));
    for cut in [" 2\nvalue 61", " 2\nvalue ", "\nvalue ", " 2", " 1\nvalue 6"] {
        assert_eq!(result(cut), unread(), "{cut:?}");
    }
}

#[test]
fn changed_is_looked_for_in_the_output() {
    let with = |pattern: &str| HostTask {
        changed_pattern: Some(pattern.to_owned()),
        ..host_task(script("echo Collecting x; echo Successfully installed x"))
    };
    assert_eq!(TaskHost::new(with("Success.* installed")).result(), done(true));
    assert_eq!(TaskHost::new(with("^Successfully.* x$")).result(), done(true), "of a line, not of the whole output");
    assert_eq!(TaskHost::new(with("upgraded")).result(), done(false));
}

#[test]
fn task_without_a_status_is_not_waited_for() {
    let killed = TaskHost::new(host_task(script("read -r pid _ <\"${ORCH_PID_FILE:-/dev/null}\"; kill -9 \"$pid\"; sleep 60")));
    let env = format!("export ORCH_PID_FILE='{}task-3.pid'\n", killed.run.context.run_file_prefix());
    std::fs::write(format!("{}/task-3.env", killed.run.context.run_dir()), env).expect("written");
    assert!(matches!(killed.result(), ActionResult::Failed(Issue { message, .. }) if message == "it was killed"));
}

#[path = "task_stop_tests.rs"]
mod stop_tests;
