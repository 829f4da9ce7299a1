//! Stand-ins of accelerate and of DeepSpeed's own launcher, as far as several hosts go. Training itself is never played.
//!
//! `accelerate launch` runs torchrun inside itself, or for one process alone a plain command (accelerate/commands/launch.py). `deepspeed
//! --no_ssh` starts this node's workers itself with no agent and no rendezvous of its own, polls them, and ends with the first bad status
//! (deepspeed/launcher/runner.py, launch.py).

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitCode};
use std::time::Duration;

use rustix::process::Signal;

use super::fake_program::{ProgramContext, ProgramOutput, exec_program, has_word};
use super::{processes, torchrun};

/// Options of accelerate without a value.
const ACCELERATE_SWITCHES: &str = "multi_gpu use_deepspeed use_fsdp use_megatron_lm cpu same_network no_python module quiet";
/// Options of accelerate that take a value; what is not among them it refuses.
const ACCELERATE_OPTIONS: &str = "config_file num_machines num_processes machine_rank main_process_ip main_process_port rdzv_backend rdzv_conf max_restarts \
     deepspeed_multinode_launcher deepspeed_config_file dynamo_backend mixed_precision zero_stage gradient_accumulation_steps \
     gradient_clipping gpu_ids role tee";
const DEEPSPEED_SWITCHES: &str = "no_ssh no_python no_local_rank module force_multi";
const DEEPSPEED_OPTIONS: &str = "hostfile node_rank master_addr master_port launcher enable_each_rank_log";

type ParsedOptions = BTreeMap<String, String>;

/// Reads options up to the first word; dashes and underscores mean the same.
fn parse_options(program: &str, plain: &str, valued: &str, args: &[String]) -> Result<(ParsedOptions, Vec<String>), String> {
    let mut given = ParsedOptions::new();
    let mut rest = args.iter();
    while let Some(word) = rest.next() {
        let Some(name) = word.strip_prefix("--") else {
            return Ok((given, std::iter::once(word.clone()).chain(rest.cloned()).collect()));
        };
        let (name, value) = name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value.to_owned())));
        let name = name.replace('-', "_");
        if has_word(plain, &name) && value.is_none() {
            given.insert(name, String::new());
        } else if has_word(valued, &name) {
            let missing = || format!("{program}: error: argument --{name}: expected one argument");
            let value = value.or_else(|| rest.next().cloned()).ok_or_else(missing)?;
            given.insert(name, value);
        } else {
            return Err(format!("{program}: error: unrecognized arguments: {word}"));
        }
    }
    Err(format!("{program}: error: the following arguments are required: training_script"))
}

fn number_option(given: &ParsedOptions, name: &str) -> u32 {
    given.get(name).and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Acts as `accelerate`.
pub(super) fn accelerate_main(context: &ProgramContext, args: &[String]) -> ExitCode {
    let Some(("launch", words)) = args.split_first().map(|(first, rest)| (first.as_str(), rest)) else {
        return ProgramOutput::fail(1, "usage: accelerate <command> [<args>]").print();
    };
    let (given, command) = match parse_options("accelerate <command> [<args>] launch", ACCELERATE_SWITCHES, ACCELERATE_OPTIONS, words) {
        Ok(found) => found,
        Err(text) => return ProgramOutput::fail(2, text).print(),
    };
    if let Some(file) = given.get("config_file").filter(|file| std::fs::metadata(file).is_err()) {
        return ProgramOutput::fail(1, format!("ValueError: The passed configuration file `{file}` does not exist.")).print();
    }
    let of = |name: &str, default: &str| given.get(name).cloned().unwrap_or_else(|| default.to_owned());
    let (machines, processes) = (number_option(&given, "num_machines"), number_option(&given, "num_processes"));
    let distributed = ["multi_gpu", "use_deepspeed", "use_fsdp", "use_megatron_lm"].iter().any(|way| given.contains_key(*way));
    if !distributed && processes == 1 {
        let words = if given.contains_key("no_python") { command } else { [vec!["python3".to_owned()], command].concat() };
        let Some((program, rest)) = words.split_first() else { return ExitCode::from(2) };
        return exec_program(program, rest);
    }
    if given.contains_key("use_deepspeed") && machines > 1 && of("deepspeed_multinode_launcher", "pdsh") != "standard" {
        return ProgramOutput::fail(1, "FileNotFoundError: [Errno 2] No such file or directory: 'pdsh'").print();
    }
    // What does not divide is dropped, in silence.
    let mut all = vec![format!("--nproc_per_node={}", processes / machines.max(1)), format!("--nnodes={machines}")];
    if machines > 1 {
        all.push(format!("--node_rank={}", of("machine_rank", "0")));
        let (ip, port) = (of("main_process_ip", "127.0.0.1"), of("main_process_port", "29500"));
        if given.contains_key("same_network") {
            all.extend([format!("--master_addr={ip}"), format!("--master_port={port}")]);
        } else {
            all.push(format!("--rdzv_endpoint={ip}:{port}"));
        }
        all.push(format!("--rdzv_backend={}", of("rdzv_backend", "static")));
    } else {
        all.push(format!("--master_port={}", of("main_process_port", "29500")));
    }
    all.extend(["no_python", "module"].iter().filter(|name| given.contains_key(**name)).map(|name| format!("--{name}")));
    all.extend(command);
    torchrun::torchrun_main(context, &all)
}

/// Acts as `deepspeed`.
pub(super) fn deepspeed_main(args: &[String]) -> ExitCode {
    let (given, command) = match parse_options("deepspeed", DEEPSPEED_SWITCHES, DEEPSPEED_OPTIONS, args) {
        Ok(found) => found,
        Err(text) => return ProgramOutput::fail(2, text).print(),
    };
    let file = given.get("hostfile").map_or("/job/hostfile", String::as_str);
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let slots: Vec<u32> = text.lines().filter_map(|line| line.split_once(" slots=")?.1.trim().parse().ok()).collect();
    let node = given.get("node_rank").and_then(|text| text.parse::<usize>().ok());
    let (true, Some(node)) = (given.contains_key("no_ssh"), node) else {
        return ProgramOutput::fail(1, "RuntimeError: launcher 'pdsh' not installed.").print();
    };
    let Some(own) = slots.get(node).copied() else {
        return ProgramOutput::fail(1, format!("ValueError: node_rank {node} is not in the hostfile")).print();
    };
    let first: u32 = slots.iter().take(node).sum();
    let python = !given.contains_key("no_python");
    let mut workers = Vec::new();
    for local in 0..own {
        let mut all = if python { vec!["python3".to_owned(), "-u".to_owned()] } else { Vec::new() };
        all.extend(command.first().cloned());
        if !given.contains_key("no_local_rank") {
            all.push(format!("--local_rank={local}"));
        }
        all.extend(command.iter().skip(1).cloned());
        let Some((program, rest)) = all.split_first() else { return ExitCode::from(2) };
        let of = |name: &str, default: &str| given.get(name).cloned().unwrap_or_else(|| default.to_owned());
        let visible: Vec<String> = (0..own).map(|gpu| gpu.to_string()).collect();
        let environment = [
            ("CUDA_VISIBLE_DEVICES", visible.join(",")),
            ("MASTER_ADDR", of("master_addr", "127.0.0.1")),
            ("MASTER_PORT", of("master_port", "29500")),
            ("WORLD_SIZE", slots.iter().sum::<u32>().to_string()),
            ("CROSS_RANK", node.to_string()),
            ("CROSS_SIZE", slots.len().to_string()),
            ("LOCAL_SIZE", own.to_string()),
            ("RANK", (first + local).to_string()),
            ("LOCAL_RANK", local.to_string()),
        ];
        match Command::new(program).args(rest).envs(environment).spawn() {
            Ok(child) => workers.push(child),
            Err(error) => return ProgramOutput::fail(1, format!("FileNotFoundError: {program}: {error}")).print(),
        }
    }
    wait_for_workers(workers)
}

/// Waits for all; the first that ends badly ends the others and gives the status, Python's negative one for a signal.
fn wait_for_workers(mut workers: Vec<Child>) -> ExitCode {
    while !workers.is_empty() {
        let mut bad = None;
        workers.retain_mut(|child| match child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) => {
                let code = status.code().unwrap_or_else(|| 256 - status.signal().unwrap_or(1));
                bad = bad.or((code != 0).then_some(code));
                false
            }
            Err(_) => false,
        });
        if let Some(code) = bad {
            for child in &mut workers {
                processes::send_signal(i32::try_from(child.id()).unwrap_or_default(), Signal::TERM);
                if let Err(error) = child.wait() {
                    tracing::debug!(%error, "a worker was not waited for");
                }
            }
            return ExitCode::from(u8::try_from(code).unwrap_or(1));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_end_at_script() {
        let words: Vec<String> =
            ["--num-machines=2", "--num_processes", "4", "--same_network", "t.py", "--multi_gpu"].map(str::to_owned).into();
        let (given, command) = parse_options("accelerate", ACCELERATE_SWITCHES, ACCELERATE_OPTIONS, &words).expect("known options");
        assert_eq!((number_option(&given, "num_machines"), number_option(&given, "num_processes")), (2, 4));
        assert_eq!(command, ["t.py", "--multi_gpu"]);
        let refused = parse_options("accelerate", ACCELERATE_SWITCHES, ACCELERATE_OPTIONS, &["--nope".to_owned(), "t.py".to_owned()]);
        assert_eq!(refused, Err("accelerate: error: unrecognized arguments: --nope".to_owned()));
    }
}
