//! torchrun's stand-in: one agent a node that meets the others, starts the workers with torchrun's environment, and ends as torchrun ends.
//!
//! Each worker leads its own session, as torchrun's do. The agent does not notice that another node died, and with `--max_restarts` only
//! its own workers are started again.

mod args;
mod rendezvous;

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::task::JoinSet;

use super::fake_program::{ProgramContext, ProgramOutput, reexec_as};
use super::processes;
use args::TorchrunArgs;
use rendezvous::{NodeAssignment, join_rendezvous};

/// From TERM to KILL.
const STOP_GRACE: Duration = Duration::from_secs(30);
/// How often the faults are looked at.
const FAULT_POLL_INTERVAL: Duration = Duration::from_millis(300);

/// Acts as `torchrun`.
pub(super) fn torchrun_main(context: &ProgramContext, words: &[String]) -> ExitCode {
    if matches!(words, [word] if word == "--help" || word == "-h") {
        return ProgramOutput::ok(args::help_text()).print();
    }
    let gpus = std::env::var("NVIDIA_VISIBLE_DEVICES").ok().filter(|list| list != "all");
    let gpus = gpus.map_or_else(|| context.host.settings().gpus, |list| u32::try_from(list.split(',').count()).unwrap_or(1));
    let args = match args::parse_args(words, gpus) {
        Ok(args) => args,
        Err(text) => return ProgramOutput::fail(if text.starts_with("usage") { 2 } else { 1 }, text).print(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(run_agent(context, &args)),
        Err(error) => ProgramOutput::fail(1, format!("torchrun: {error}")).print(),
    }
}

fn print_stderr(text: &str) {
    if std::io::stderr().write_all(format!("{text}\n").as_bytes()).is_err() {
        tracing::debug!("no task reads torchrun's standard error");
    }
}

fn log_timestamp() -> String {
    jiff::Zoned::now().strftime("%m%d %H:%M:%S.%6f").to_string()
}

async fn run_agent(context: &ProgramContext, args: &TorchrunArgs) -> ExitCode {
    if args.nproc > 1 && std::env::var_os("OMP_NUM_THREADS").is_none() {
        print_stderr(&format!(
            "W{} {} torch/distributed/run.py:793] Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your \
             system being overloaded, please further tune the variable for optimal performance in your application as needed.",
            log_timestamp(),
            std::process::id()
        ));
    }
    let (assignment, store) = match join_rendezvous(args).await {
        Ok(found) => found,
        Err(text) => {
            print_stderr(&format!("Traceback (most recent call last):\n{text}"));
            return ExitCode::from(1);
        }
    };
    let Ok(mut stops) = StopSignals::new() else { return ProgramOutput::fail(1, "torchrun: no signal handlers").print() };
    for restart in 0..=args.max_restarts {
        let mut group = match WorkerGroup::start(context, args, assignment, restart) {
            Ok(group) => group,
            Err(text) => {
                print_stderr(&text);
                return ExitCode::from(1);
            }
        };
        match group.wait(context, &mut stops).await {
            WorkerGroupExit::Success => {
                store.wait_exit_barrier().await;
                return ExitCode::SUCCESS;
            }
            WorkerGroupExit::Signaled(name, number) => {
                group.stop_workers().await;
                let text = format!(
                    "torch.distributed.elastic.multiprocessing.api.SignalException: Process {} got signal: {number}",
                    std::process::id()
                );
                print_stderr(&format!(
                    "W{} {} torch/distributed/elastic/agent/server/api.py:719] Received {name} death signal, shutting down workers\nTraceback (most recent call last):\n{text}",
                    log_timestamp(),
                    std::process::id()
                ));
                return ExitCode::from(1);
            }
            WorkerGroupExit::Failed => {
                group.stop_workers().await;
                if restart == args.max_restarts {
                    print_stderr(&group.failure_summary(context, args));
                    return ExitCode::from(1);
                }
            }
        }
    }
    ExitCode::from(1)
}

/// The signals that end torchrun.
struct StopSignals {
    streams: Vec<(Signals, &'static str, i32)>,
}

impl StopSignals {
    fn new() -> std::io::Result<Self> {
        let each = [
            (SignalKind::terminate(), "Signals.SIGTERM"),
            (SignalKind::interrupt(), "Signals.SIGINT"),
            (SignalKind::hangup(), "Signals.SIGHUP"),
            (SignalKind::quit(), "Signals.SIGQUIT"),
        ];
        let each = each.into_iter().map(|(kind, name)| Ok((signal(kind)?, name, kind.as_raw_value()))).collect::<std::io::Result<_>>()?;
        Ok(StopSignals { streams: each })
    }

    async fn recv(&mut self) -> (&'static str, i32) {
        let waiting = self.streams.iter_mut().map(|(stream, name, number)| {
            Box::pin(async move {
                stream.recv().await;
                (*name, *number)
            })
        });
        futures_util::future::select_all(waiting).await.0
    }
}

enum WorkerGroupExit {
    Success,
    Failed,
    Signaled(&'static str, i32),
}

struct Worker {
    pid: i32,
    local_rank: u32,
    rank: u32,
    status: Option<ExitStatus>,
}

/// The workers of this node.
struct WorkerGroup {
    workers: Vec<Worker>,
    exits: JoinSet<(u32, ExitStatus)>,
    failures: Vec<usize>,
    started: Instant,
    gpu_record_path: std::path::PathBuf,
}

impl WorkerGroup {
    fn start(context: &ProgramContext, args: &TorchrunArgs, assignment: NodeAssignment, restart: u32) -> Result<Self, String> {
        let record = context.host.root().join("gpu").join(std::process::id().to_string());
        if let Err(error) = std::fs::write(&record, "") {
            print_stderr(&format!("torchrun: {error}"));
        }
        let mut group = WorkerGroup {
            workers: Vec::new(),
            exits: JoinSet::new(),
            failures: Vec::new(),
            started: Instant::now(),
            gpu_record_path: record,
        };
        for local in 0..args.nproc {
            let mut command = reexec_as("sandbox-shim").map_err(|e| format!("torchrun: {e}"))?;
            command.arg("setsid");
            match (args.no_python, args.module) {
                (true, _) => {}
                (false, true) => drop(command.args(["python3", "-u", "-m"])),
                (false, false) => drop(command.args(["python3", "-u"])),
            }
            command.args(&args.command).envs(worker_env(args, assignment, local, restart));
            let mut child = tokio::process::Command::from(command).spawn().map_err(|e| format!("torchrun: {e}"))?;
            let pid = child.id().and_then(|id| i32::try_from(id).ok()).unwrap_or_default();
            group.workers.push(Worker { pid, local_rank: local, rank: assignment.first_rank + local, status: None });
            group.exits.spawn(async move { (local, child.wait().await.unwrap_or_else(|_| ExitStatus::from_raw(255 << 8))) });
        }
        Ok(group)
    }

    fn record_exit(&mut self, local_rank: u32, status: ExitStatus) {
        let index = local_rank as usize;
        if let Some(worker) = self.workers.get_mut(index) {
            worker.status = Some(status);
        }
        if !status.success() {
            self.failures.push(index);
        }
    }

    /// Follows the workers until all have ended well, one has failed, or torchrun gets a stop signal.
    async fn wait(&mut self, context: &ProgramContext, signals: &mut StopSignals) -> WorkerGroupExit {
        let mut starved = false;
        loop {
            tokio::select! {
                (name, number) = signals.recv() => return WorkerGroupExit::Signaled(name, number),
                () = tokio::time::sleep(FAULT_POLL_INTERVAL) => {
                    starved = starved || self.apply_oom_fault(context);
                    if context.host.is_abandoned() {
                        self.workers.iter().for_each(|w| processes::send_group_signal(w.pid, Signal::KILL));
                    }
                }
                ended = self.exits.join_next() => match ended {
                    None => return WorkerGroupExit::Success,
                    Some(Ok((local, status))) => {
                        self.record_exit(local, status);
                        if !status.success() {
                            return WorkerGroupExit::Failed;
                        }
                    }
                    Some(Err(_)) => return WorkerGroupExit::Failed,
                },
            }
        }
    }

    /// The kernel kills a rank for lack of memory; in a container its supervisor does that.
    fn apply_oom_fault(&self, context: &ProgramContext) -> bool {
        let fault = context.host.faults().oom_kill.filter(|_| context.container_id.is_none());
        let Some(fault) = fault.filter(|fault| self.workers.iter().any(|w| w.rank == fault.rank)) else { return false };
        let marker = format!("SANDBOX_HOST={}", context.host.root().display());
        self.started.elapsed().as_secs_f64() >= fault.after && processes::oom_kill_rank(&marker, &fault)
    }

    /// TERM to each worker's group, KILL after the grace.
    async fn stop_workers(&mut self) {
        for worker in self.workers.iter().filter(|w| w.status.is_none()) {
            print_stderr(&format!(
                "W{} {} torch/distributed/elastic/multiprocessing/api.py:897] Sending process {} closing signal SIGTERM",
                log_timestamp(),
                std::process::id(),
                worker.pid
            ));
            processes::send_group_signal(worker.pid, Signal::TERM);
        }
        let end = tokio::time::Instant::now() + STOP_GRACE;
        let first = self.failures.len();
        loop {
            match tokio::time::timeout_at(end, self.exits.join_next()).await {
                Ok(Some(Ok((local, status)))) => self.record_exit(local, status),
                Ok(Some(Err(_))) => {}
                Ok(None) => break,
                Err(_) => {
                    self.workers.iter().filter(|w| w.status.is_none()).for_each(|w| processes::send_group_signal(w.pid, Signal::KILL));
                    while let Some(ended) = self.exits.join_next().await {
                        ended.into_iter().for_each(|(local, status)| self.record_exit(local, status));
                    }
                    break;
                }
            }
        }
        // Workers that ended because of the stop are no failures.
        self.failures.truncate(first);
    }

    /// What torchrun prints about its failed workers.
    fn failure_summary(&self, context: &ProgramContext, args: &TorchrunArgs) -> String {
        let Some(worker) = self.failures.first().and_then(|index| self.workers.get(*index)) else { return String::new() };
        let status = worker.status.unwrap_or_default();
        let code = status.code().unwrap_or_else(|| -status.signal().unwrap_or(0));
        let traceback = match status.signal() {
            Some(number) => format!("Signal {number} ({}) received by PID {}", signal_name(number), worker.pid),
            None => "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html".to_owned(),
        };
        let binary = args.command.first().map(String::as_str).filter(|_| args.no_python).unwrap_or("/usr/bin/python3");
        let (double, single) = ("=".repeat(60), "-".repeat(60));
        format!(
            "E{} {} torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: {code}) local_rank: {} (pid: {}) of binary: {binary}\n\
             Traceback (most recent call last):\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n{double}\n{} FAILED\n{single}\n\
             Failures:\n  <NO_OTHER_FAILURES>\n{single}\nRoot Cause (first observed failure):\n[0]:\n  time      : {}\n  host      : {}\n  rank      : \
             {} (local_rank: {})\n  exitcode  : {code} (pid: {})\n  error_file: <N/A>\n  traceback : {traceback}\n{double}",
            log_timestamp(),
            std::process::id(),
            worker.local_rank,
            worker.pid,
            args.command.first().map(String::as_str).unwrap_or_default(),
            jiff::Zoned::now().strftime("%Y-%m-%d_%H:%M:%S"),
            context.host.settings().name,
            worker.rank,
            worker.local_rank,
            worker.pid,
        )
    }
}

impl Drop for WorkerGroup {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.gpu_record_path) {
            tracing::debug!(%error, "the record of busy GPUs stays");
        }
    }
}

fn worker_env(args: &TorchrunArgs, assignment: NodeAssignment, local_rank: u32, restart: u32) -> Vec<(String, String)> {
    let rank = assignment.first_rank + local_rank;
    let mut variables = vec![
        ("RANK", rank.to_string()),
        ("LOCAL_RANK", local_rank.to_string()),
        ("GROUP_RANK", assignment.group_rank.to_string()),
        ("ROLE_RANK", rank.to_string()),
        ("ROLE_NAME", "default".to_owned()),
        ("WORLD_SIZE", assignment.world_size.to_string()),
        ("LOCAL_WORLD_SIZE", args.nproc.to_string()),
        ("GROUP_WORLD_SIZE", args.nnodes.to_string()),
        ("ROLE_WORLD_SIZE", assignment.world_size.to_string()),
        ("MASTER_ADDR", args.master_addr.clone()),
        ("MASTER_PORT", assignment.master_port.to_string()),
        ("TORCHELASTIC_RESTART_COUNT", restart.to_string()),
        ("TORCHELASTIC_MAX_RESTARTS", args.max_restarts.to_string()),
        ("TORCHELASTIC_RUN_ID", args.run_id.clone()),
        ("TORCHELASTIC_USE_AGENT_STORE", "True".to_owned()),
    ];
    if args.nproc > 1 && std::env::var_os("OMP_NUM_THREADS").is_none() {
        variables.push(("OMP_NUM_THREADS", "1".to_owned()));
    }
    variables.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
}

fn signal_name(number: i32) -> &'static str {
    match number {
        6 => "SIGABRT",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        15 => "SIGTERM",
        2 => "SIGINT",
        _ => "a signal",
    }
}
