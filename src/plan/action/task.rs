//! A task of `prepare`: started like a launcher, waited for, and judged by the status that its wrapper leaves.

use std::time::Duration;

use crate::model::exit::Exit;
use crate::model::remote_command::{CommandOutput, RemoteCommand};
use crate::plan::action::ActionResult;
use crate::plan::action::detached_start::DetachedStart;
use crate::plan::action::terminal_reads::{self, asked_for_input};
use crate::plan::host_context::{HostContext, SAFE_READ_SH};
use crate::plan::logind::{EXIT_NO_SCOPE, SystemdScope};
use crate::plan::process_status::parse_exit;
use crate::plan::task::HostTask;
use crate::text::shell_quote::quote;

/// The longest registered value, bytes.
const MAX_VALUE_BYTES: usize = 4096;
/// How much of a log's end `changed` is looked for in.
const SEARCHED_BYTES: usize = 256 << 10;
/// How much of the log of a failed task is read for its last line.
const TAIL_BYTES: usize = 4096;
/// Added to the task's timeout: for the start and the last bytes of the log.
const OVERHEAD: Duration = Duration::from_secs(120);
/// How long a start may take.
const START_TIME: Duration = Duration::from_secs(60);

const EXIT_CONTAINER_ENDED: i32 = 79;
const EXIT_RUN_REMOVED: i32 = 77;
const EXIT_KILLED: i32 = 76;
/// What a wait prints where an order has stopped the run.
const STOPPED_WORD: &str = "stopped";
/// The messages of a wait that ended and says nothing about the task itself.
pub(crate) const TASK_STOPPED: &str = "stopped by another command";
pub(crate) const TASK_REMOVED: &str = "another command removed the run";
/// The upper bound of a wait.
const LONGEST_WAIT: Duration = Duration::from_secs(30 * 24 * 3600);

/// Starts the task unless it was started, and waits for its end.
#[derive(Debug, Clone)]
pub struct RunTask {
    pub context: HostContext,
    pub task: HostTask,
    pub secrets: Vec<(String, String)>,
    pub scope: SystemdScope,
    /// What earlier tasks have registered.
    pub registered: Vec<(String, String)>,
}

impl RunTask {
    /// Start and wait in one, for people.
    pub(super) fn command(&self) -> RemoteCommand {
        let script = format!("{}{}", self.start_script(), wait_script(&self.context, &self.task));
        self.remote_command(script, self.task.longest_time() + OVERHEAD)
    }

    /// Starts the task unless it was started; ends when its wrapper is recorded.
    pub(crate) fn start_command(&self) -> RemoteCommand {
        self.remote_command(format!("{}exit 0\n", self.start_script()), START_TIME)
    }

    /// Waits for the end of the task, which was started.
    pub(crate) fn wait_command(&self) -> RemoteCommand {
        let script = format!("{}{}", self.context.script_preamble(), wait_script(&self.context, &self.task));
        self.remote_command(script, self.task.longest_time() + OVERHEAD)
    }

    fn remote_command(&self, script: String, deadline: Duration) -> RemoteCommand {
        RemoteCommand::from_script(&self.task.name, script, deadline)
            .with_masked_values(self.secrets.iter().map(|(_, value)| value.clone()))
    }

    fn start_script(&self) -> String {
        let start = DetachedStart {
            context: &self.context,
            subject: "the task",
            wrapper: format!("{} {}", quote(&format!("{}/task", self.context.run_dir())), self.task.number),
            base: self.task.base_name(),
            secrets: &self.secrets,
            bundles_secrets: true,
            scope: &self.scope,
            registered: &self.registered,
        };
        start.script()
    }

    pub(super) fn judge(&self, output: &CommandOutput) -> ActionResult {
        let (host, task) = (&self.context.host, &self.task);
        if !output.is_success() {
            let hint = match output.exit_code {
                EXIT_NO_SCOPE => self.scope.hint(host),
                EXIT_CONTAINER_ENDED if self.context.in_container => {
                    format!("`docker logs {}` on {host} may show why", self.context.container_name())
                }
                _ => String::new(),
            };
            return ActionResult::failed(output.error_line(), hint);
        }
        let Some(answer) = TaskAnswer::parse(&output.stdout, &task.base_name()) else {
            return ActionResult::failed("the task's status cannot be read", "see the task's log");
        };
        match (answer.exit, answer.word.as_str()) {
            (Exit::Code(0), "creates") => ActionResult::Skipped(format!("{} exists", task.command.creates.as_deref().unwrap_or_default())),
            (Exit::Code(0), "unless") => ActionResult::Skipped("`unless` succeeded".to_owned()),
            (Exit::Code(0), word) => self.judge_success(&answer, word == "missing"),
            _ => self.describe_failure(&answer),
        }
    }

    fn judge_success(&self, answer: &TaskAnswer<'_>, missing: bool) -> ActionResult {
        if self.task.register.is_some()
            && let Err(why) = answer.registered_value()
        {
            let hint = "print one line of text without control characters, at most 4 KiB; errors belong to stderr";
            return ActionResult::failed(format!("its output cannot be registered: {why}"), hint);
        }
        let changed = match &self.task.changed_pattern {
            // The inventory validated the pattern. `^` and `$` are those of a line.
            Some(pattern) => {
                regex::bytes::RegexBuilder::new(pattern).multi_line(true).build().is_ok_and(|pattern| pattern.is_match(answer.log))
            }
            None => self.task.register.is_none(),
        };
        let warning = match &self.task.command.creates {
            Some(creates) if missing => {
                format!("task `{}` ran, and nothing matches its `creates: {creates}`: it will run each time", self.task.name)
            }
            _ => String::new(),
        };
        ActionResult::Done { note: String::new(), changed, warning }
    }

    /// Bash begins its errors with the path of the task's script, which differs on each host.
    fn without_script_path<'a>(&self, line: &'a str) -> &'a str {
        let script = format!("/{}.run: ", self.task.base_name());
        line.split_once(&script)
            .filter(|(directory, _)| directory.starts_with('/') && !directory.contains(' '))
            .map_or(line, |(_, rest)| rest)
    }

    fn describe_failure(&self, answer: &TaskAnswer<'_>) -> ActionResult {
        let task = &self.task;
        let log = String::from_utf8_lossy(answer.log);
        let last = log.lines().rev().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("orchestrate: ended after"));
        let tries = if task.retries > 0 { format!(" ({} tries)", task.retries + 1) } else { String::new() };
        let what = match answer.word.as_str() {
            "timeout" => format!("not done after {} s{tries}", task.timeout_secs()),
            "chdir" | "bash" | "secrets" => "it could not start".to_owned(),
            "value" => "its output could not be kept".to_owned(),
            _ => format!("{}{tries}", answer.exit),
        };
        let message = match last.map(|last| (last, last.strip_prefix("orchestrate: "))) {
            None => what,
            Some((_, Some(reason))) => format!("{what}: {reason}"),
            Some((last, None)) => format!("{what}; last line: {}", self.without_script_path(last)),
        };
        let hint = match answer.word.as_str() {
            "timeout" => "raise its `timeout`, or find out what it waits for",
            "chdir" => "correct `chdir`, or make the directory in an earlier task",
            "bash" => "install bash there: tasks are bash scripts",
            "value" => "see whether the disk of run_dir is full; tasks that register need dd, head, mv and wc there",
            _ if task.uses_sudo && last.is_some_and(|line| line.starts_with("sudo:")) => {
                "allow it in sudoers with NOPASSWD, or remove `become: sudo`"
            }
            _ if answer.exit == Exit::Code(127) && last.is_some_and(|line| line.ends_with("not found")) => {
                "install the program there in an earlier task, correct its name, or set PATH in `env`"
            }
            _ if asked_for_input(&log) => terminal_reads::HINT,
            _ => {
                "see the task's log; when the task is corrected, run the command again: tasks whose `creates` or `unless` still holds are skipped"
            }
        };
        ActionResult::failed(message, hint)
    }

    /// The value that the task registers on this host.
    pub(crate) fn registered_value(&self, output: &CommandOutput) -> Option<(String, String)> {
        let name = self.task.register.clone()?;
        let answer = TaskAnswer::parse(&output.stdout, &self.task.base_name()).filter(|answer| answer.exit.is_success())?;
        answer.registered_value().ok().map(|value| (name, value))
    }
}

/// Looks whether the name is still locked by this command, before a task sends its files.
pub(crate) fn check_lock_command(context: &HostContext) -> RemoteCommand {
    RemoteCommand::from_script("look at the lock", format!("{}exit 0\n", context.lock_check()), START_TIME)
}

/// Notes on the host that a task has sent its files there.
pub(crate) fn record_sent_files_command(context: &HostContext, number: u32) -> RemoteCommand {
    let script = format!("{}echo {number} >>{} || exit 73\nexit 0\n", context.lock_check(), quote(&context.sent_files_path()));
    RemoteCommand::from_script("note that the files arrived", script, START_TIME)
}

/// Waits until a task of the current run has ended on the host: another command has started it.
#[derive(Debug, Clone)]
pub struct WaitForTask {
    pub context: HostContext,
    pub number: u32,
    /// Its name, for people.
    pub title: String,
}

impl WaitForTask {
    pub(super) fn command(&self) -> RemoteCommand {
        let base = format!("task-{}", self.number);
        // The mark of an order is there before the status that it causes.
        let script = format!(
            "{}{SAFE_READ_SH}(\n{})\ncode=$?\n[ ! -e {} ] || echo {STOPPED_WORD}\n[ \"$code\" = 0 ] || exit \"$code\"\n\
             cd -P -- \"$OUT\" && dir=$(pwd -P) || exit 72\nfirst_lines \"$dir\" {}\nexit 0\n",
            self.context.script_preamble(),
            wait_for_status_script(&self.context, &base),
            quote(&self.context.stop_marker()),
            quote(&format!("{}.{base}.rc", self.context.run_id)),
        );
        RemoteCommand::from_script("wait for the running task", script, LONGEST_WAIT)
    }

    pub(super) fn judge(&self, output: &CommandOutput) -> ActionResult {
        let text = output.stdout_text();
        let stopped = text.lines().any(|line| line == STOPPED_WORD);
        match output.exit_code {
            EXIT_RUN_REMOVED => return ActionResult::failed(TASK_REMOVED, ""),
            0 => {}
            _ if stopped => return ActionResult::failed(TASK_STOPPED, ""),
            _ => return ActionResult::failed(output.error_line(), ""),
        }
        let exits: Vec<Exit> = text.lines().filter_map(|line| Some(parse_exit(line.split_once(' ')?.1)?.0)).collect();
        if exits.is_empty() {
            return ActionResult::failed("the task's status cannot be read", "see the task's log");
        }
        match exits.into_iter().find(|exit| !exit.is_success()) {
            None => ActionResult::unchanged("ended"),
            Some(_) if stopped => ActionResult::failed(TASK_STOPPED, ""),
            Some(exit) => ActionResult::failed(exit.to_string(), "see the task's log"),
        }
    }
}

/// Waits until the status of a task is there.
fn wait_for_status_script(context: &HostContext, base: &str) -> String {
    let prefix = context.run_file_prefix();
    let (rc, pid) = (quote(&format!("{prefix}{base}.rc")), quote(&format!("{prefix}{base}.pid")));
    let process_ended = if context.in_container {
        format!(
            "case $(D inspect --type container --format '{{{{.State.Running}}}}' {} 2>&1) in\n\
             false | *[Nn]'o such container'* | *[Nn]'o such object'*) sleep 2; [ -e {rc} ] || {{ echo 'the container has ended' >&2; exit {EXIT_CONTAINER_ENDED}; }} ;; esac",
            quote(&context.container_name()),
        )
    } else {
        format!(
            "p=; {{ read -r p _ <{pid}; }} 2>/dev/null\n\
             if number \"$p\" && ! kill -0 \"$p\" 2>/dev/null; then sleep 2; [ -e {rc} ] || {{ echo 'it was killed' >&2; exit {EXIT_KILLED}; }}; fi"
        )
    };
    format!(
        "i=0\n\
         while [ ! -e {rc} ]; do\n\
         i=$((i + 1)); if [ $i -lt 10 ]; then sleep 0.1; else sleep 0.4; fi\n\
         [ -e {settings} ] || {{ echo \"the run's files were removed\" >&2; exit {EXIT_RUN_REMOVED}; }}\n\
         if [ $((i % 20)) = 0 ]; then {process_ended}; fi\n\
         done\n",
        settings = quote(&format!("{}/settings", context.run_dir())),
    )
}

/// Waits until the task's status is there, then prints it with what is needed to judge it.
fn wait_script(context: &HostContext, task: &HostTask) -> String {
    let (prefix, base) = (context.run_file_prefix(), task.base_name());
    let file = |end: &str| quote(&format!("{prefix}{base}.{end}"));
    // Relative to the out directory, as its readers want it.
    let name = |end: &str| quote(&format!("{}.{base}.{end}", context.run_id));
    let kept = if task.changed_pattern.is_some() { SEARCHED_BYTES } else { TAIL_BYTES };
    let value = if task.register.is_some() {
        format!("printf 'value '; bytes {} \"$dir\" 1 {} | od -An -v -tx1 | tr -d ' \\n'; echo\n", name("value"), MAX_VALUE_BYTES + 1)
    } else {
        String::new()
    };
    format!(
        "{SAFE_READ_SH}\
         {waiting}\
         i=0; while [ ! -e {end} ] && [ $i -lt 20 ]; do i=$((i + 1)); sleep 0.1; done\n\
         cd -P -- \"$OUT\" && dir=$(pwd -P) || exit 72\n\
         first_lines \"$dir\" {rc_name}\n\
         {value}\
         printf 'log\\n'; within 20 sh -c \"$OPENED\"'{{ proper \"$1\" \"$2\" && tail -c {kept}; }} <\"$1\"' sh {log_name} \"$dir\" 2>/dev/null\n\
         exit 0\n",
        waiting = wait_for_status_script(context, &base),
        end = file("end"),
        rc_name = name("rc"),
        log_name = name("log"),
    )
}

/// What the wait prints: `<run>.task-3.rc <status> <second> <word> [<bytes of the value>]`, `value <hex>`, `log` and the end of the log.
struct TaskAnswer<'a> {
    exit: Exit,
    word: String,
    value_length: Option<usize>,
    value: Option<&'a [u8]>,
    log: &'a [u8],
}

impl TaskAnswer<'_> {
    fn parse<'a>(output: &'a [u8], base: &str) -> Option<TaskAnswer<'a>> {
        let mut rest = output;
        let mut next_line = || {
            let end = rest.iter().position(|b| *b == b'\n')?;
            let (line, tail) = rest.split_at(end);
            rest = tail.get(1..).unwrap_or_default();
            Some(line)
        };
        let status = std::str::from_utf8(next_line()?).ok()?;
        let (file, status) = status.split_once(' ')?;
        if !file.ends_with(&format!(".{base}.rc")) {
            return None;
        }
        let (exit, _) = parse_exit(status)?;
        let mut words = status.split_whitespace().skip(2);
        let word = words.next().unwrap_or_default().to_owned();
        let value_length = words.next().and_then(|length| length.parse().ok());
        let mut line = next_line()?;
        let value = line.strip_prefix(b"value ");
        if value.is_some() {
            line = next_line()?;
        }
        (line == b"log").then_some(TaskAnswer { exit, word, value_length, value, log: rest })
    }

    /// One line of UTF-8 without control characters.
    fn registered_value(&self) -> Result<String, String> {
        let (Some(hex), Some(length)) = (self.value, self.value_length) else { return Err("it could not be read".to_owned()) };
        let digit = |b: u8| char::from(b).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let bytes: Option<Vec<u8>> = hex.chunks(2).map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)).collect();
        let bytes = bytes.filter(|bytes| bytes.len() == length).ok_or("it could not be read")?;
        let text = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        if bytes.len() > MAX_VALUE_BYTES {
            return Err("it is longer than 4 KiB".to_owned());
        }
        let text = std::str::from_utf8(text).map_err(|_| "it is not UTF-8".to_owned())?;
        match text.chars().find(|c| c.is_control()) {
            Some('\n') => Err(format!("it has {} lines", text.lines().count())),
            Some(c) => Err(format!("it has the control character U+{:04X}", u32::from(c))),
            None => Ok(text.to_owned()),
        }
    }
}

#[cfg(test)]
#[path = "task_tests.rs"]
mod tests;
