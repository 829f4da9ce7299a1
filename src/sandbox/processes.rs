//! Which processes are a fake host's or a container's, and their end.
//!
//! A process belongs to a marker when its environment carries it, when an ancestor does, or when it shares a session with one that does: a
//! program that wipes its environment stays in.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::scenario::OomKill;

/// One process of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProcessInfo {
    pub(super) pid: i32,
    pub(super) parent_pid: i32,
    /// Its session's leader; 0: not known.
    pub(super) session_id: i32,
}

/// Every process that is not already dead.
#[cfg(target_os = "linux")]
pub(super) fn list_processes() -> Vec<ProcessInfo> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok())).filter_map(read_process).collect()
}

#[cfg(target_os = "linux")]
fn read_process(pid: i32) -> Option<ProcessInfo> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after) = stat.rsplit_once(')')?;
    let mut fields = after.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    (state != "Z" && state != "X").then_some(ProcessInfo { pid, parent_pid: parent, session_id: session })
}

/// The environment of a process, as `K=V`; empty where it may not be read.
#[cfg(target_os = "linux")]
pub(super) fn process_environ(pid: i32) -> Vec<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    bytes.split(|b| *b == 0).filter(|v| !v.is_empty()).map(|v| String::from_utf8_lossy(v).into_owned()).collect()
}

/// The words of a process's command line, joined.
#[cfg(target_os = "linux")]
pub(super) fn command_line(pid: i32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    bytes.split(|b| *b == 0).map(String::from_utf8_lossy).collect::<Vec<_>>().join(" ").trim_end().to_owned()
}

#[cfg(target_os = "linux")]
fn has_marker(pid: i32, marker: &str) -> bool {
    let bytes = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    bytes.split(|b| *b == 0).any(|variable| variable == marker.as_bytes())
}

/// Every process, by `ps`: macOS has no /proc, and does not show sessions.
#[cfg(not(target_os = "linux"))]
pub(super) fn list_processes() -> Vec<ProcessInfo> {
    let text = run_ps(&["-ax", "-o", "pid=,ppid=,stat="]);
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace();
            let (pid, parent) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
            (!fields.next()?.starts_with('Z')).then_some(ProcessInfo { pid, parent_pid: parent, session_id: 0 })
        })
        .collect()
}

#[cfg(not(target_os = "linux"))]
fn run_ps(args: &[&str]) -> String {
    let out = std::process::Command::new("/bin/ps").args(args).output();
    out.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default()
}

/// The environment of a process as far as `ps` shows it.
#[cfg(not(target_os = "linux"))]
pub(super) fn process_environ(pid: i32) -> Vec<String> {
    run_ps(&["-Eww", "-o", "command=", "-p", &pid.to_string()]).split_whitespace().map(str::to_owned).collect()
}

/// The words of a process's command line.
#[cfg(not(target_os = "linux"))]
pub(super) fn command_line(pid: i32) -> String {
    run_ps(&["-ww", "-o", "command=", "-p", &pid.to_string()]).trim_end().to_owned()
}

#[cfg(not(target_os = "linux"))]
fn has_marker(pid: i32, marker: &str) -> bool {
    process_environ(pid).iter().any(|variable| variable == marker)
}

/// The processes that belong to `marker` (`NAME=value`), outermost first, by pid. Never this process.
pub(super) fn find_marked(marker: &str) -> Vec<i32> {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let all = list_processes();
    let own_session = all.iter().find(|p| p.pid == own).map_or(0, |p| p.session_id);
    let marked: HashSet<i32> = all.iter().filter(|p| p.pid != own && has_marker(p.pid, marker)).map(|p| p.pid).collect();
    add_descendants(&all, marked, own, own_session)
}

/// Adds descendants and those of the same session until nothing is added.
fn add_descendants(all: &[ProcessInfo], mut found: HashSet<i32>, own_pid: i32, own_session: i32) -> Vec<i32> {
    loop {
        // Only the sessions that a member leads: a member that was merely born into a foreign session proves nothing about its neighbours.
        let sessions: HashSet<i32> = all
            .iter()
            .filter(|p| found.contains(&p.pid) && p.session_id == p.pid && p.session_id != own_session)
            .map(|p| p.session_id)
            .collect();
        let more: Vec<i32> = all
            .iter()
            .filter(|p| p.pid != own_pid && !found.contains(&p.pid))
            .filter(|p| found.contains(&p.parent_pid) || (p.session_id > 1 && sessions.contains(&p.session_id)))
            .map(|p| p.pid)
            .collect();
        if more.is_empty() {
            break;
        }
        found.extend(more);
    }
    let mut members: Vec<i32> = found.into_iter().collect();
    members.sort_unstable();
    members
}

/// Sends a signal; a process that is gone is no error.
pub(super) fn send_signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid)
        && let Err(error) = kill_process(pid, signal)
    {
        tracing::debug!(pid = pid.as_raw_nonzero().get(), %error, "not signalled");
    }
}

/// Sends a signal to every process of a group.
pub(super) fn send_group_signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid)
        && let Err(error) = kill_process_group(pid, signal)
    {
        tracing::debug!(%error, "not signalled");
    }
}

/// Kills what belongs to `marker` until nothing does; what is left after `within` is returned.
pub(super) fn kill_marked(marker: &str, within: Duration) -> Vec<i32> {
    let end = Instant::now() + within;
    loop {
        let left = find_marked(marker);
        if left.is_empty() || Instant::now() >= end {
            return left;
        }
        for pid in &left {
            send_signal(*pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// How long a process must look like a rank before it counts as one.
const RANK_RECHECK_DELAY: Duration = Duration::from_millis(200);

/// Kills the rank that a fault names, as the kernel does when memory is short; returns whether there was one; the caller tries again if not.
pub(super) fn oom_kill_rank(marker: &str, fault: &OomKill) -> bool {
    oom_kill_rank_after(marker, fault, || std::thread::sleep(RANK_RECHECK_DELAY))
}

/// A child that a rank has started has the rank's own words until it becomes another program: so it is looked at a second time.
fn oom_kill_rank_after(marker: &str, fault: &OomKill, pause: impl FnOnce()) -> bool {
    let rank = format!("RANK={}", fault.rank);
    let fits = |pid: &i32| {
        let line = command_line(*pid);
        let fits = if fault.matching.is_empty() { !line.starts_with("sleep") } else { line.contains(&fault.matching) };
        fits && process_environ(*pid).contains(&rank)
    };
    let Some(chosen) = find_marked(marker).into_iter().rev().find(fits) else { return false };
    pause();
    if !fits(&chosen) {
        return false;
    }
    send_signal(chosen, Signal::KILL);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32, session: i32) -> ProcessInfo {
        ProcessInfo { pid, parent_pid: parent, session_id: session }
    }

    #[test]
    fn marked_processes_include_descendants_and_led_sessions() {
        let all = [
            process(10, 1, 10),
            process(11, 10, 10),
            process(12, 1, 10), // an orphan of the session that 10 leads
            process(13, 12, 13),
            process(20, 1, 20), // a stranger
            process(30, 1, 20), // marked, but born into the stranger's session
        ];
        assert_eq!(add_descendants(&all, HashSet::from([10]), 99, 99), [10, 11, 12, 13]);
        assert_eq!(add_descendants(&all, HashSet::from([30]), 99, 99), [30]);
    }

    #[test]
    fn oom_kill_spares_process_before_exec() {
        let marker = format!("SANDBOX_STARVES={}", std::process::id());
        let (name, value) = marker.split_once('=').expect("a pair");
        // A line of input makes it another program.
        let mut child = std::process::Command::new("/bin/sh")
            .args(["-c", "read -r line; exec sleep 300", "payload"])
            .env(name, value)
            .env("RANK", "3")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("a shell");
        let pid = i32::try_from(child.id()).expect("a pid");
        while !command_line(pid).contains("payload") {
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut fault = OomKill { rank: 3, after: 0.0, matching: "payload".to_owned() };
        let becomes = || {
            std::io::Write::write_all(&mut child.stdin.take().expect("piped"), b"go\n").expect("written");
            while !command_line(pid).starts_with("sleep") {
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        assert!(!oom_kill_rank_after(&marker, &fault, becomes));
        assert!(child.try_wait().expect("a child").is_none(), "it lives");
        fault.matching = "sleep 300".to_owned();
        assert!(oom_kill_rank(&marker, &fault));
        assert!(!child.wait().expect("reaped").success());
    }

    #[test]
    fn kill_marked_ends_process_tree() {
        let marker = format!("SANDBOX_TEST={}", std::process::id());
        let (name, value) = marker.split_once('=').expect("a pair");
        let mut child = std::process::Command::new("/bin/sh")
            .args(["-c", "sleep 300 & env -i sleep 300 & wait"])
            .env(name, value)
            .spawn()
            .expect("a shell");
        while find_marked(&marker).len() < 3 {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(kill_marked(&marker, Duration::from_secs(5)), Vec::<i32>::new());
        child.wait().expect("reaped");
    }
}
