//! The stacks of all ranks: the script for a host, the reader of its answer, and the grouping of ranks with equal stacks.
//!
//! The lines are described in `assets/stacks.sh`. What hosts wrote is unsafe to show before `report/sanitize`.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::remote_command::{CommandOutput, RemoteCommand};
use crate::plan::host_context::HostContext;
use crate::text::shell_quote::quote;

/// Seconds for all tools of one host together.
const TOOL_BUDGET_SECS: u64 = 40;
/// The most bytes of one host's answer.
const MAX_OUTPUT_BYTES: usize = 4 << 20;
/// How many lines of a rank's stacks are kept.
const MAX_STACK_LINES: usize = 400;

/// The stacks of one rank.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RankStack {
    pub rank: u32,
    /// How often its launcher restarted it.
    pub restart: u32,
    /// Its process, as it is numbered where it runs.
    pub pid: u32,
    /// The source: `py-spy`, `gdb`, `kernel`; `ended`: it has none any more.
    pub source: String,
    pub command_line: String,
    /// The kernel's state of its main thread, and where that waits in the kernel.
    pub kernel_state: String,
    /// Its threads: how many have the same name.
    pub threads: Vec<String>,
    /// All its stacks, unchanged.
    pub stack_lines: Vec<String>,
    /// Whether it handles SIGUSR1.
    pub handles_usr1: bool,
    /// Why there is nothing better.
    pub fallback_reason: String,
}

/// The question to one host.
pub(crate) fn stacks_command(context: &HostContext) -> RemoteCommand {
    let (run_dir, files) = (quote(&context.run_dir()), quote(&context.run_file_prefix()));
    let inner = format!("R={run_dir} F={files} budget={TOOL_BUDGET_SECS}\n{}", include_str!("../../../assets/stacks.sh"));
    let script = format!("{}{}\n", context.script_preamble(), context.exec_script(&format!("-c {}", quote(&inner))));
    RemoteCommand::from_script("read the ranks' stacks", script, Duration::from_secs(TOOL_BUDGET_SECS + 20))
        .with_output_limit(MAX_OUTPUT_BYTES)
}

/// Reads the answer.
///
/// # Errors
/// The host's message instead of stacks.
pub(crate) fn parse_stacks(output: &CommandOutput) -> Result<Vec<RankStack>, String> {
    let text = output.stdout_text();
    let mut all: Vec<RankStack> = Vec::new();
    let mut whole = false;
    for line in text.lines() {
        let (mark, rest) = line.split_once(' ').unwrap_or((line, ""));
        if mark == "R" {
            let words: Vec<&str> = rest.split(' ').collect();
            if let [rank, restart, pid, how] = words.as_slice()
                && let (Ok(rank), Ok(restart), Ok(pid)) = (rank.parse(), restart.parse(), pid.parse())
            {
                all.push(RankStack { rank, restart, pid, source: (*how).to_owned(), ..RankStack::default() });
            }
            continue;
        }
        whole |= line == "looked";
        let Some(stack) = all.last_mut() else { continue };
        match mark {
            "c" => stack.command_line = rest.trim().to_owned(),
            "s" => stack.kernel_state = rest.trim_end_matches(" 0").to_owned(),
            "t" => stack.threads.push(rest.to_owned()),
            "f" if stack.stack_lines.len() < MAX_STACK_LINES => stack.stack_lines.push(rest.to_owned()),
            "u" => stack.handles_usr1 = true,
            "x" => rest.clone_into(&mut stack.fallback_reason),
            _ => {}
        }
    }
    if !whole && output.dropped_bytes == 0 {
        return Err(output.error_line());
    }
    // Of a restarted rank only the last life counts.
    let mut last: BTreeMap<u32, RankStack> = BTreeMap::new();
    for stack in all {
        if last.get(&stack.rank).is_none_or(|known| known.restart <= stack.restart) {
            last.insert(stack.rank, stack);
        }
    }
    Ok(last.into_values().collect())
}

impl RankStack {
    /// The place by which ranks are folded: the main thread's frames, without numbers that differ from process to process.
    pub(crate) fn main_frames(&self) -> Vec<String> {
        let frames = match self.source.as_str() {
            "py-spy" => py_spy_frames(&self.stack_lines),
            "gdb" => gdb_frames(&self.stack_lines),
            "kernel" => self.stack_lines.iter().map(|line| kernel_symbol(line)).collect(),
            _ => Vec::new(),
        };
        match frames.is_empty() {
            true if self.source == "ended" => Vec::new(),
            true => vec![self.state_text()],
            false => frames,
        }
    }

    /// The state of the main thread in words, and where it waits in the kernel.
    ///
    /// The letters are those of `proc_pid_stat(5)`.
    pub(crate) fn state_text(&self) -> String {
        let (letter, place) = self.kernel_state.split_once(' ').unwrap_or((&self.kernel_state, ""));
        let state = match letter {
            "R" => "running or ready to run (R)",
            "S" => "sleeping (S)",
            "D" => "waiting in the kernel, cannot be interrupted (D)",
            "Z" => "ended, not yet reaped (Z)",
            "T" => "stopped by a signal (T)",
            "t" => "stopped by a debugger (t)",
            _ => "unknown",
        };
        match place {
            "" => format!("main thread: {state}"),
            place => format!("main thread: {state}, in kernel function {}", kernel_symbol(place)),
        }
    }
}

/// The frames of the main thread, else of the first.
fn py_spy_frames(lines: &[String]) -> Vec<String> {
    let mut threads: Vec<(bool, Vec<String>)> = Vec::new();
    for line in lines {
        if line.starts_with("Thread ") {
            threads.push((line.contains("MainThread"), Vec::new()));
        } else if let (Some((_, frames)), true) = (threads.last_mut(), line.starts_with(' ')) {
            frames.push(line.trim().to_owned());
        }
    }
    let main = threads.iter().position(|(main, _)| *main).unwrap_or(0);
    threads.into_iter().nth(main).map(|(_, frames)| frames).unwrap_or_default()
}

/// The frames of thread 1 without addresses and arguments.
fn gdb_frames(lines: &[String]) -> Vec<String> {
    let mut frames = Vec::new();
    let mut main = false;
    for line in lines {
        if line.starts_with("Thread ") {
            // The main thread comes first, and once more among all.
            main = frames.is_empty() && line.starts_with("Thread 1 ");
        } else if let (true, Some(frame)) = (main, line.strip_prefix('#')) {
            let words = frame.split_once(' ').map_or(frame, |(_, rest)| rest).trim();
            let words = words.split_once(" in ").filter(|(at, _)| at.starts_with("0x")).map_or(words, |(_, rest)| rest);
            frames.push(words.split(" (").next().unwrap_or(words).to_owned());
        }
    }
    frames
}

/// `[<0>] futex_wait+0x12/0x34`: `futex_wait`.
fn kernel_symbol(line: &str) -> String {
    let name = line.split_once("] ").map_or(line, |(_, name)| name);
    name.split('+').next().unwrap_or(name).to_owned()
}

/// Ranks with equal stacks, and the host of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StackGroup {
    pub source: String,
    /// The frames, the innermost first.
    pub frames: Vec<String>,
    /// Host index and stack of each rank, by rank.
    pub members: Vec<(usize, RankStack)>,
}

/// Groups equal stacks; the smallest group first, since the others usually wait for the rank that differs.
pub(crate) fn group_stacks(all: Vec<(usize, RankStack)>) -> Vec<StackGroup> {
    let mut groups: BTreeMap<(String, Vec<String>), Vec<_>> = BTreeMap::new();
    for (host, stack) in all {
        groups.entry((stack.source.clone(), stack.main_frames())).or_default().push((host, stack));
    }
    let mut groups: Vec<StackGroup> = groups
        .into_iter()
        .map(|((how, place), mut members)| {
            members.sort_by_key(|(_, stack)| stack.rank);
            StackGroup { source: how, frames: place, members }
        })
        .collect();
    groups.sort_by_key(|group| (group.source == "ended", group.members.len(), group.members.first().map(|(_, stack)| stack.rank)));
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stdout_output(text: &str) -> CommandOutput {
        CommandOutput { stdout: text.as_bytes().to_vec(), ..CommandOutput::default() }
    }

    fn py_spy_text(rank: u32, frame: &str) -> String {
        format!(
            "R {rank} 0 {pid} py-spy\nc python3 train.py\ns S futex_wait\nt 3 python3\nf Process {pid}: python3 train.py\nf Python v3.11.2 (/usr/bin/python3.11)\n\
             f \nf Thread {pid} (idle): \"MainThread\"\nf     {frame}\nf     <module> (train.py:22)\nf Thread 9{pid} (idle): \"Thread-1\"\nf     wait (threading.py:320)\n.\n",
            pid = 100 + rank
        )
    }

    #[test]
    fn equal_stacks_group_smallest_group_first() {
        let mut text: String =
            (0..4).map(|rank| py_spy_text(rank, if rank == 3 { "load (train.py:9)" } else { "barrier (dist.py:7)" })).collect();
        text.push_str("R 4 0 200 ended\n.\nlooked\n");
        let stacks = parse_stacks(&stdout_output(&text)).expect("an answer");
        assert_eq!(
            (stacks[0].command_line.as_str(), stacks[0].kernel_state.as_str(), stacks[0].threads.as_slice()),
            ("python3 train.py", "S futex_wait", &["3 python3".to_owned()][..])
        );
        let groups = group_stacks(stacks.into_iter().map(|stack| (0, stack)).collect());
        let output: Vec<(Vec<u32>, Option<&str>)> = groups
            .iter()
            .map(|group| (group.members.iter().map(|(_, stack)| stack.rank).collect(), group.frames.first().map(String::as_str)))
            .collect();
        assert_eq!(output, [(vec![3], Some("load (train.py:9)")), (vec![0, 1, 2], Some("barrier (dist.py:7)")), (vec![4], None)]);
    }

    #[test]
    fn frames_omit_addresses_and_arguments() {
        let text = "R 0 0 7 gdb\ns S 0\nf Thread 2 (Thread 0x7f (LWP 8)):\nf #0  0x01 in poll () from /lib/libc.so\nf Thread 1 (Thread 0x7e (LWP 7)):\n\
                    f #0  0x00007f12 in __futex_wait (a=1) at futex.c:57\nf #1  main (argc=2) at a.c:3\n.\n\
                    R 1 0 9 kernel\ns S do_wait\nu\nf [<0>] do_wait+0x5c/0x120\nx neither py-spy nor gdb here\n.\nR 2 0 9 kernel\ns R 0\nx no\n.\nlooked\n";
        let stacks = parse_stacks(&stdout_output(text)).expect("an answer");
        assert_eq!(stacks[0].main_frames(), ["__futex_wait", "main"]);
        assert_eq!((stacks[1].main_frames(), stacks[1].handles_usr1), (vec!["do_wait".to_owned()], true));
        assert_eq!(stacks[2].main_frames(), ["main thread: running or ready to run (R)"]);
    }

    #[test]
    fn latest_restart_wins_and_errors_are_reported() {
        let stacks = parse_stacks(&stdout_output("R 0 1 8 kernel\n.\nR 0 0 7 ended\n.\nR x\nlooked\n")).expect("an answer");
        assert_eq!(stacks.iter().map(|stack| (stack.restart, stack.pid)).collect::<Vec<_>>(), [(1, 8)]);
        let output =
            CommandOutput { exit_code: 1, stderr: b"Error: No such container: orch-a-gpu01\n".to_vec(), ..CommandOutput::default() };
        assert_eq!(parse_stacks(&output), Err("Error: No such container: orch-a-gpu01".to_owned()));
    }
}
