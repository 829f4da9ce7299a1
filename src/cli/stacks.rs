//! `stacks`: prints every rank's stack, equal ones grouped. Sends no signal and changes nothing.

use std::collections::BTreeMap;

use crate::cli::args::StacksArgs;
use crate::cli::exit::CliError;
use crate::cli::local_env::{print_json, print_stderr, print_stdout, user_lang, wrap_to_terminal};
use crate::cli::open_session::open_query;
use crate::cli::unreachable::print_unreachable;
use crate::event::Outcome;
use crate::lifecycle::collect_stacks::{CollectedStacks, collect_stacks};
use crate::lifecycle::session::Session;
use crate::plan::protocol::stacks;
use crate::plan::protocol::stacks::{RankStack, StackGroup};
use crate::report::style::{Tone, format_ranks};
use crate::text::hostlist::fold_names;
use crate::text::plural::count_noun;
use crate::text::rank_selection::RankSelection;

/// Longer stacks are cut in the text; the JSON has every frame.
const MAX_FRAMES: usize = 24;

pub(crate) async fn run(args: &StacksArgs) -> Result<Outcome, CliError> {
    let (session, signals) = open_query("stacks", &args.common)?;
    let filter = RankSelection::merge(&args.rank).resolve(&session.host_names(), &[]).map_err(CliError::Usage)?;
    let outcome = match signals.run_until_stopped(collect_stacks(&session)).await {
        Ok(mut collected) => {
            let known: Vec<u32> = collected.stacks.iter().map(|(_, stack)| stack.rank).collect();
            collected.stacks.retain(|(host, stack)| u32::try_from(*host).is_ok_and(|host| filter.selects_rank(host, stack.rank)));
            if collected.stacks.is_empty() && !known.is_empty() {
                print_stderr(&format!("none of these ranks runs: {} have stacks", format_ranks(&known)));
            }
            print_stacks(&session, collected, args.common.wants_json(args.json))
        }
        Err(outcome) => outcome,
    };
    Ok(session.disconnect(&signals, outcome).await)
}

fn print_stacks(session: &Session, collected: CollectedStacks, json: bool) -> Outcome {
    let CollectedStacks { stacks: found, queried_hosts, unreachable, outcome } = collected;
    if json {
        print_json(&to_json_lines(session, &found));
    } else {
        print_stdout(&format_text(session, &stacks::group_stacks(found)));
    }
    if queried_hosts == 0 && unreachable.is_empty() {
        let (ps, up) = (session.suggest_command("ps", ""), session.suggest_command("up", ""));
        print_stderr(&format!("no rank is on any host; `{ps}` shows the hosts, `{up}` launches a run"));
    }
    print_unreachable(session, unreachable);
    outcome
}

/// One line per rank, sorted by rank.
fn to_json_lines(session: &Session, found: &[(usize, RankStack)]) -> String {
    let names = session.host_names();
    let mut by_rank: Vec<&(usize, RankStack)> = found.iter().collect();
    by_rank.sort_by_key(|(_, stack)| stack.rank);
    let lines = by_rank.into_iter().map(|(host, stack)| {
        let line = serde_json::json!({
            "format": "stacks 1", "rank": stack.rank, "host": names.get(*host), "restart": stack.restart, "pid": stack.pid, "how": stack.source,
            "command": stack.command_line, "state": stack.kernel_state, "threads": stack.threads, "stack": stack.main_frames(), "lines": stack.stack_lines,
            "handles_usr1": stack.handles_usr1, "note": stack.fallback_reason,
        });
        session.reporter.sanitizer().mask_json(line.to_string()) + "\n"
    });
    lines.collect()
}

/// Whether a process runs a Python interpreter; `command_line`: its words.
fn runs_python(command_line: &str) -> bool {
    let program = command_line.split_whitespace().next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default();
    ["python", "pypy"].iter().any(|interpreter| name.starts_with(interpreter))
}

/// How to install py-spy for the first rank of the group's first host, and the ranks for which the same reaches the others.
fn suggest_py_spy(group: &StackGroup, install: impl Fn(u32) -> String) -> String {
    let mut first_ranks: BTreeMap<usize, u32> = BTreeMap::new();
    for (host, stack) in &group.members {
        let first = first_ranks.entry(*host).or_insert(stack.rank);
        *first = stack.rank.min(*first);
    }
    let mut ranks = first_ranks.into_values();
    let command = install(ranks.next().unwrap_or_default());
    let others: Vec<u32> = ranks.collect();
    match others[..] {
        [] => format!("next: add py-spy to the image; for this run, if the container has pip: `{command}`, then this command again"),
        [other] => {
            format!(
                "next: add py-spy to the image; for this run, if the container has pip: `{command}` and `{}`, then this command again",
                install(other)
            )
        }
        _ => {
            let others = format_ranks(&others);
            format!(
                "next: add py-spy to the image; for this run, if the container has pip: `{command}`, the same on {others}, then this command again"
            )
        }
    }
}

/// What the kernel's view leaves open, and how to see more. `py_spy`: how to install it.
fn kernel_view_limits(reason: &str, ranks: usize, py_spy: &str) -> Vec<String> {
    let limit = match ranks {
        1 => "Python lines are not visible: where this rank stands in its code is unknown".to_owned(),
        _ => {
            format!(
                "Python lines are not visible: these {} may be at different ones, and a hung rank would look the same",
                count_noun(ranks, "rank")
            )
        }
    };
    let next = if reason.contains("neither py-spy nor gdb") {
        py_spy.to_owned()
    } else if ["permission", "not permitted", "ptrace"].iter().any(|word| reason.to_lowercase().contains(word)) {
        "next: set container.args: [--cap-add=SYS_PTRACE] for the next launch; on a bare host, kernel.yama.ptrace_scope=0".to_owned()
    } else if reason.contains("no timeout(1)") {
        "next: add coreutils (timeout) and py-spy to the image".to_owned()
    } else {
        String::new()
    };
    [limit, next].into_iter().filter(|line| !line.is_empty()).collect()
}

fn format_text(session: &Session, groups: &[StackGroup]) -> String {
    let (names, style, sanitizer) = (session.host_names(), session.reporter.style(), session.reporter.sanitizer());
    let (mut lines, lang) = (Vec::new(), user_lang());
    for group in groups {
        let ranks: Vec<u32> = group.members.iter().map(|(_, stack)| stack.rank).collect();
        let mut hosts: Vec<String> = group.members.iter().filter_map(|(host, _)| names.get(*host).cloned()).collect();
        hosts.sort();
        hosts.dedup();
        let hosts = sanitizer.sanitize_line(&fold_names(&hosts));
        let title = lang.tr_fill("{} on {}", &[&lang.message(&format_ranks(&ranks)), &hosts]);
        lines.push(style.paint(Tone::Plain, &format!("---- {title} ({})", group.source)));
        let Some((_, first)) = group.members.first() else { continue };
        lines.extend(group.frames.iter().take(MAX_FRAMES).map(|frame| format!("    {}", lang.message(&sanitizer.sanitize_line(frame)))));
        if group.frames.len() > MAX_FRAMES {
            let more = count_noun(group.frames.len() - MAX_FRAMES, "frame");
            lines.push(format!("    {}", lang.tr_fill("… {} more", &[&lang.message(&more)])));
        }
        let dim = |text: String| {
            let text = wrap_to_terminal(&format!("    {}", lang.lines(&sanitizer.sanitize_line(&text))));
            text.split('\n').map(|line| style.paint(Tone::Dim, line)).collect::<Vec<_>>().join("\n")
        };
        let py_spy = suggest_py_spy(group, |rank| session.suggest_command("shell", &format!("{rank} -- pip install py-spy")));
        let is_python = runs_python(&first.command_line);
        if group.source == "gdb" && is_python {
            lines.push(dim("gdb shows native frames: where the interpreter is, not which line of Python runs".to_owned()));
            lines.push(dim(py_spy.clone()));
        }
        if group.source == "kernel" {
            lines.push(dim(format!("command of rank {}: {}", first.rank, first.command_line)));
            let state = first.state_text();
            if !group.frames.contains(&state) {
                lines.push(dim(state));
            }
            lines.push(dim(format!("threads: {}", first.threads.join(", "))));
            if is_python {
                lines.push(dim(format!("only kernel information: {}", first.fallback_reason)));
                lines.extend(kernel_view_limits(&first.fallback_reason, ranks.len(), &py_spy).into_iter().map(dim));
            } else {
                lines.push(dim("only kernel information: this program is not Python".to_owned()));
            }
        }
        if group.source == "kernel" && group.members.iter().any(|(_, stack)| stack.handles_usr1) {
            let text = "it handles SIGUSR1; with faulthandler.register(signal.SIGUSR1), this command writes its stacks to its log:";
            lines.push(dim(text.to_owned()));
            let target = group.members.iter().map(|(_, stack)| stack).find(|stack| stack.handles_usr1).unwrap_or(first);
            // The pid is valid in the container (or on the host), so the command runs through `shell`.
            lines.push(dim(format!("  {}", session.suggest_command("shell", &format!("{} -- 'kill -USR1 {}'", target.rank, target.pid)))));
        }
    }
    lines.into_iter().fold(String::new(), |all, line| all + &line + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreter_is_known_by_its_name() {
        for (command, expected) in [
            ("/opt/conda/bin/python3.11 -u train.py", true),
            ("pypy3 train.py", true),
            ("bash /srv/python/train.sh", false),
            ("/srv/python/bin/sleep 5", false),
            ("", false),
        ] {
            assert_eq!(runs_python(command), expected, "{command}");
        }
    }

    /// Ranks with equal kernel stacks may differ in Python: the text says so and how to see the difference.
    #[test]
    fn kernel_view_states_its_limits() {
        let lines = |reason: &str, ranks| {
            kernel_view_limits(reason, ranks, "next: add py-spy to the image; for this run: `orchestrate shell 0 -- pip install py-spy`")
                .join("\n")
        };
        assert_eq!(
            lines("neither py-spy nor gdb here", 16),
            "Python lines are not visible: these 16 ranks may be at different ones, and a hung rank would look the same\n\
             next: add py-spy to the image; for this run: `orchestrate shell 0 -- pip install py-spy`"
        );
        assert!(lines("py-spy: Error: Permission Denied: Try running again with elevated permissions", 2).contains("--cap-add=SYS_PTRACE"));
        assert!(lines("gdb: ptrace: Operation not permitted.", 1).starts_with("Python lines are not visible: where this rank stands"));
        assert!(lines("no timeout(1) here", 2).contains("coreutils"));
        assert_eq!(lines("py-spy: exit 7", 2).lines().count(), 1, "no advice where the reason is not known");
    }
}
