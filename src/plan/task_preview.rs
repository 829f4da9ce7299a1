//! What a dry run asks the hosts about their tasks: whether `creates` matches and `unless` succeeds now. Nothing is changed, as far as `unless`
//! only looks.

use std::time::Duration;

use unicode_width::UnicodeWidthStr as _;

use crate::model::remote_command::{CommandOutput, RemoteCommand};
use crate::plan::Plan;
use crate::plan::action::{Action, Observation};
use crate::plan::facts::HostFacts;
use crate::plan::host_context::HostContext;
use crate::plan::task::HostTask;
use crate::text::hostlist::fold_names;
use crate::text::shell_quote::{quote, quote_home};
use crate::text::translation::Lang;
use crate::text::width::{pad_end, wrap_with_indent};

const DETAIL_INDENT: usize = 9;
/// The longest that one `unless` may take in a dry run.
const UNLESS_SECS: u64 = 60;

/// What a task would do on one host now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskForecast {
    Runs,
    /// Its container is made first: only then its `creates` and `unless` can be evaluated.
    RunsInNewContainer,
    /// `creates` matches.
    Exists,
    /// `unless` succeeded.
    UnlessSucceeded,
    /// The host did not answer.
    Unknown,
}

/// What a task would do to a host, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowEffect {
    /// It would run, or send files.
    Changes,
    /// Its condition says that it need not run.
    Skipped,
    None,
}

/// What one task would do on some hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PreviewRow {
    pub number: u32,
    pub name: String,
    pub text: String,
    pub effect: RowEffect,
    pub hosts: Vec<String>,
    /// Lines beneath it: the names of files.
    pub details: Vec<String>,
}

/// Whether no container runs on each host yet that the plan is to make.
pub(crate) fn lacks_containers(plan: &Plan, facts: &[HostFacts]) -> Vec<bool> {
    let mut lacks = vec![false; plan.hosts.len()];
    for step in &plan.steps {
        let (Action::StartContainer(_), Some(facts), Some(slot)) = (&step.action, facts.get(step.host), lacks.get_mut(step.host)) else {
            continue;
        };
        let runs = facts.container().is_some_and(|container| container.status == "running");
        *slot = !runs && matches!(step.action.observe(facts), Observation::Needed(_));
    }
    lacks
}

/// The tasks of one host, and the command that evaluates them.
struct HostTasks<'a> {
    context: &'a HostContext,
    tasks: Vec<&'a HostTask>,
    /// Whether the container is to be made first.
    needs_container: bool,
}

/// The tasks of a plan on each host, in order.
pub(crate) struct TaskPreview<'a> {
    hosts: Vec<HostTasks<'a>>,
}

impl<'a> TaskPreview<'a> {
    pub(crate) fn new(plan: &'a Plan, facts: &[HostFacts]) -> TaskPreview<'a> {
        let mut hosts: Vec<HostTasks<'a>> =
            plan.hosts.iter().map(|context| HostTasks { context, tasks: Vec::new(), needs_container: false }).collect();
        for step in &plan.steps {
            let (Some(host), Some(facts)) = (hosts.get_mut(step.host), facts.get(step.host)) else { continue };
            match &step.action {
                Action::StartContainer(start) if start.spec.is_some() => {
                    host.needs_container = !matches!(step.action.observe(facts), Observation::Satisfied(_));
                }
                Action::RunTask(run) => host.tasks.push(&run.task),
                _ => {}
            }
        }
        TaskPreview { hosts }
    }

    /// What evaluates the tasks, for the hosts that have something to evaluate.
    pub(crate) fn commands(&self) -> Vec<(usize, RemoteCommand)> {
        let is_asked = |host: &HostTasks<'_>| host.asked(true).chain(host.asked(false)).next().is_some();
        self.hosts.iter().enumerate().filter(|(_, host)| is_asked(host)).map(|(index, host)| (index, host.command())).collect()
    }

    /// What each task would do on a host. `answer`: what its command printed.
    pub(crate) fn forecasts(&self, host: usize, answer: Option<&CommandOutput>) -> Vec<(u32, TaskForecast)> {
        let Some(host) = self.hosts.get(host) else { return Vec::new() };
        let text = answer.filter(|output| output.is_success()).map(CommandOutput::stdout_text).unwrap_or_default();
        let of_task = |task: &HostTask| {
            if !has_condition(task) {
                return TaskForecast::Runs;
            }
            if host.needs_container && task.in_container {
                return TaskForecast::RunsInNewContainer;
            }
            let word = text.lines().find_map(|line| line.strip_prefix(&format!("{} ", task.base_name())));
            match word {
                Some("run") => TaskForecast::Runs,
                Some("creates") => TaskForecast::Exists,
                Some("unless") => TaskForecast::UnlessSucceeded,
                _ => TaskForecast::Unknown,
            }
        };
        host.tasks.iter().map(|task| (task.number, of_task(task))).collect()
    }

    /// One row for each task and host.
    pub(crate) fn rows(&self, forecasts: &[Vec<(u32, TaskForecast)>]) -> Vec<PreviewRow> {
        let of_host = |(host, own): (&HostTasks<'_>, &Vec<(u32, TaskForecast)>)| -> Vec<PreviewRow> {
            let row = |(task, (number, forecast)): (&&HostTask, &(u32, TaskForecast))| {
                let (text, effect) = forecast.describe();
                let hosts = vec![host.context.host.clone()];
                PreviewRow { number: *number, name: task.name.clone(), text: text.to_owned(), effect, hosts, details: Vec::new() }
            };
            host.tasks.iter().zip(own).map(row).collect()
        };
        self.hosts.iter().zip(forecasts).flat_map(of_host).collect()
    }
}

/// The rows as text, equal hosts together, and what they cannot show.
pub(crate) fn format_rows(rows: Vec<PreviewRow>, lang: Lang, columns: usize) -> String {
    let mut folded: Vec<PreviewRow> = Vec::new();
    for row in rows {
        match folded.iter_mut().find(|other| (other.number, &other.text, &other.details) == (row.number, &row.text, &row.details)) {
            Some(other) => other.hosts.extend(row.hosts),
            None => folded.push(row),
        }
    }
    folded.sort_by_key(|row| row.number);
    let width = folded.iter().map(|row| row.name.width()).max().unwrap_or(0);
    let host_width = folded.iter().map(|row| fold_names(&row.hosts).width()).max().unwrap_or(0);
    let mut text = String::new();
    for row in &folded {
        let (name, hosts) = (pad_end(&row.name, width), pad_end(&fold_names(&row.hosts), host_width));
        let start = format!("  {:>3}  {name}  {hosts}  ", row.number);
        let indent = " ".repeat(if start.width() > columns / 2 { DETAIL_INDENT } else { start.width() });
        wrap_with_indent(&lang.message(&row.text), &start, &indent, columns).iter().for_each(|line| text.push_str(&format!("{line}\n")));
        row.details.iter().for_each(|line| text.push_str(&format!("{:DETAIL_INDENT$}{line}\n", "")));
    }
    let first_change = folded.iter().find(|row| row.effect == RowEffect::Changes).map(|row| row.number);
    if folded.iter().any(|row| row.effect == RowEffect::Skipped && first_change.is_some_and(|first| first < row.number)) {
        text.push_str(lang.tr("`creates` and `unless` were evaluated now: earlier tasks can change the answer"));
        text.push('\n');
    }
    text
}

impl TaskForecast {
    fn describe(self) -> (&'static str, RowEffect) {
        match self {
            TaskForecast::Runs => ("would run", RowEffect::Changes),
            TaskForecast::RunsInNewContainer => ("would run, unless the new container has what it makes", RowEffect::Changes),
            TaskForecast::Exists => ("would be skipped: what it creates exists", RowEffect::Skipped),
            TaskForecast::UnlessSucceeded => ("would be skipped: `unless` succeeded", RowEffect::Skipped),
            TaskForecast::Unknown => ("unknown: `creates` and `unless` could not be evaluated", RowEffect::None),
        }
    }
}

fn has_condition(task: &HostTask) -> bool {
    task.command.creates.is_some() || task.command.unless.is_some()
}

impl HostTasks<'_> {
    /// The tasks of one place whose conditions can be evaluated now.
    fn asked(&self, in_container: bool) -> impl Iterator<Item = &HostTask> {
        let can_ask = !(in_container && self.needs_container);
        self.tasks.iter().copied().filter(move |task| can_ask && task.in_container == in_container && has_condition(task))
    }

    fn command(&self) -> RemoteCommand {
        let mut script = self.context.script_preamble();
        let on_host = HostContext { in_container: false, ..self.context.clone() };
        for (context, in_container) in [(self.context, true), (&on_host, false)] {
            let body: String = self.asked(in_container).map(condition_script).collect();
            if !body.is_empty() {
                let inside = format!("-c {}", quote(&format!("cd || exit\n{body}exit 0\n")));
                script.push_str(&format!("{} </dev/null || exit\n", context.exec_script(&inside)));
            }
        }
        let unless = self.asked(true).chain(self.asked(false)).filter(|task| task.command.unless.is_some()).count() as u64;
        RemoteCommand::from_script("evaluate the tasks", script, Duration::from_secs(30 + unless * (UNLESS_SECS + 2)))
    }
}

/// Prints `task-3 creates`, `task-3 unless` or `task-3 run`. A directory that is not there may be made by an earlier task.
fn condition_script(task: &HostTask) -> String {
    let (command, base) = (&task.command, task.base_name());
    // Of `~` the ssh user's home is meant.
    let mut script = String::from(if task.uses_sudo { "home=$HOME HOME=$1\n" } else { "(\n" });
    if let Some(dir) = &command.chdir {
        script.push_str(&format!("cd -- {} 2>/dev/null || {{ echo {base} run; exit; }}\n", quote_home(dir, quote)));
    }
    for (name, value) in task.run_env.iter().chain(&command.env) {
        script.push_str(&format!("export {name}={}\n", quote(value)));
    }
    if let Some(creates) = &command.creates {
        script.push_str(&format!("creates={}\n", quote(creates)));
        script.push_str("case $creates in '~/'*) creates=$HOME/${creates#\\~/} ;; esac\n");
        script.push_str(&format!(
            "IFS=; for f in $creates; do if [ -e \"$f\" ] || [ -L \"$f\" ]; then echo {base} creates; exit; fi; done; unset IFS\n"
        ));
    }
    if let Some(unless) = &command.unless {
        script.push_str(if task.uses_sudo { "HOME=$home\n" } else { "" });
        script.push_str(&format!(
            "if timeout {UNLESS_SECS} bash -c {} >/dev/null 2>&1 </dev/null; then echo {base} unless; exit; fi\n",
            quote(unless)
        ));
    }
    if task.uses_sudo {
        script.push_str(&format!("echo {base} run\n"));
        return format!("sudo -n /bin/sh -c {} sh \"$HOME\"\n", quote(&script));
    }
    script.push_str(&format!("echo {base} run\n)\n"));
    script
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::inventory::TaskCommand;

    fn task(number: u32, command: TaskCommand) -> HostTask {
        HostTask { number, name: format!("t{number}"), command, timeout: Duration::from_secs(30), ..HostTask::default() }
    }

    #[test]
    fn conditions_are_evaluated_and_nothing_runs() {
        let home = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(home.path().join("dist dir")).expect("made");
        std::fs::write(home.path().join("dist dir/x-1.whl"), "").expect("written");
        let run = || TaskCommand { script: "touch ran".to_owned(), ..TaskCommand::default() };
        let creates = |pattern: &str| TaskCommand { creates: Some(pattern.to_owned()), ..run() };
        let unless = |line: &str| TaskCommand {
            unless: Some(line.to_owned()),
            env: BTreeMap::from([("WANTED".to_owned(), "it's".to_owned())]),
            ..run()
        };
        let commands = [
            run(),
            creates("~/dist dir/x-*.whl"),
            TaskCommand { chdir: Some("~/dist dir".to_owned()), ..creates("x-*") },
            creates("$(touch ran)*"),
            unless("[[ $WANTED == \"it's\" ]]"),
            unless("read -r line"),
            TaskCommand { chdir: Some("/no/such/dir".to_owned()), ..unless("true") },
        ];
        let tasks: Vec<HostTask> = (1..).zip(commands).map(|(number, command)| task(number, command)).collect();
        let context = HostContext::new("n", "gpu01", "/nowhere");
        let host = HostTasks { context: &context, tasks: tasks.iter().collect(), needs_container: false };
        let mut shell = std::process::Command::new("/bin/sh");
        let out = shell.args(["-c", &host.command().script]).env("HOME", home.path()).output().expect("a shell");
        let answer = CommandOutput { exit_code: out.status.code().unwrap_or(-1), stdout: out.stdout, ..CommandOutput::default() };
        let preview = TaskPreview { hosts: vec![host] };
        let forecasts = preview.forecasts(0, Some(&answer));
        let expected = [
            TaskForecast::Runs,
            TaskForecast::Exists,
            TaskForecast::Exists,
            TaskForecast::Runs,
            TaskForecast::UnlessSucceeded,
            TaskForecast::Runs,
            TaskForecast::Runs,
        ];
        assert_eq!(forecasts.iter().map(|(_, forecast)| *forecast).collect::<Vec<_>>(), expected);
        assert!(!home.path().join("ran").exists(), "nothing ran");
        assert_eq!(preview.forecasts(0, None)[1].1, TaskForecast::Unknown, "no answer is no yes");
        let mut rows = preview.rows(&[forecasts]);
        let sent = |host: &str| PreviewRow {
            text: "would send 1 new, 3 B".to_owned(),
            hosts: vec![host.to_owned()],
            details: vec!["+ a".to_owned()],
            ..rows[0].clone()
        };
        let sent = [sent("gpu01"), sent("gpu02")];
        rows.extend(sent);
        let text = format_rows(rows, Lang::En, 80);
        assert!(text.contains("    2  t2  gpu01       would be skipped: what it creates exists\n"), "{text}");
        assert!(text.contains("    1  t1  gpu[01-02]  would send 1 new, 3 B\n         + a\n"), "{text}");
        assert!(text.ends_with("earlier tasks can change the answer\n"), "{text}");
    }
}
