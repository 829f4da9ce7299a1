//! The launchers' own flags that we build: `command` and `launch.args` must not contain them.
//!
//! Sources: torch/distributed/run.py, accelerate/commands/launch.py, deepspeed/launcher/runner.py.

use super::errors::InventoryErrors;
use super::launcher::{DeepspeedLauncher, Launcher};
use super::schema::nearest_word;
use super::yaml_tree::{SourceLocation, YamlKind, YamlNode, shorten};

/// torchrun's, and those of the torchrun form of `deepspeed`.
const TORCHRUN_FLAGS: [&str; 14] = [
    "nnodes",
    "nproc_per_node",
    "node_rank",
    "rdzv_id",
    "rdzv_backend",
    "rdzv_endpoint",
    "rdzv_conf",
    "master_addr",
    "master_port",
    "max_restarts",
    "no_python",
    "module",
    "local_addr",
    "standalone",
];
const ACCELERATE_FLAGS: [&str; 18] = [
    "num_machines",
    "num_processes",
    "machine_rank",
    "main_process_ip",
    "main_process_port",
    "same_network",
    "rdzv_backend",
    "rdzv_conf",
    "max_restarts",
    "multi_gpu",
    "gpu_ids",
    "no_python",
    "module",
    "tpu",
    "mpirun_hostfile",
    "deepspeed_multinode_launcher",
    "deepspeed_hostfile",
    "deepspeed_inclusion_filter",
];
const DEEPSPEED_FLAGS: [&str; 16] = [
    "hostfile",
    "no_ssh",
    "no_ssh_check",
    "node_rank",
    "num_nodes",
    "num_gpus",
    "include",
    "exclude",
    "master_addr",
    "master_port",
    "launcher",
    "force_multi",
    "save_pid",
    "no_python",
    "no_local_rank",
    "module",
];

/// Flags that this launcher is given by us.
fn reserved_flags_of(launcher: Launcher) -> &'static [&'static str] {
    match launcher {
        Launcher::Torchrun(_) | Launcher::Deepspeed(DeepspeedLauncher::Torchrun(_)) => &TORCHRUN_FLAGS,
        Launcher::Accelerate => &ACCELERATE_FLAGS,
        Launcher::Deepspeed(DeepspeedLauncher::Hostfile) => &DEEPSPEED_FLAGS,
        Launcher::Processes | Launcher::Script => &[],
    }
}

/// Where the value of a flag of ours comes from.
fn reserved_flag_hint(name: &str, launcher: Launcher) -> String {
    match name {
        "nproc_per_node" | "master_port" | "max_restarts" => format!("set launch.{name}"),
        "num_processes" | "num_gpus" => "remove it: launch.nproc_per_node and `hosts` define it".to_owned(),
        "main_process_port" => "set launch.master_port".to_owned(),
        "rdzv_backend" => "set launch.rendezvous".to_owned(),
        "nnodes" | "node_rank" | "num_machines" | "machine_rank" | "num_nodes" | "hostfile" | "deepspeed_hostfile" => {
            "remove it: `hosts` defines it".to_owned()
        }
        "master_addr" | "main_process_ip" => "set master".to_owned(),
        "gpu_ids" | "include" | "exclude" | "deepspeed_inclusion_filter" => "set the host's gpus, or container.gpus".to_owned(),
        "no_python" | "module" => "begin the command with --no_python and a program, or with -m and a module".to_owned(),
        _ => format!("remove it: orchestrate passes it to {} on every host", launcher.as_str()),
    }
}

/// The name of a flag as torch's parsers know it, without dashes in it.
fn flag_name(word: &str) -> Option<String> {
    let name = word.strip_prefix('-')?.trim_start_matches('-');
    Some(name.split('=').next().unwrap_or_default().replace('-', "_"))
}

/// Whether a program starts ranks by itself.
fn is_launcher(argv: &[String]) -> bool {
    let program = argv.first().map_or("", |w| w.rsplit('/').next().unwrap_or_default());
    matches!(program, "torchrun" | "accelerate" | "deepspeed")
        || argv.iter().take(4).any(|word| matches!(word.as_str(), "torch.distributed.run" | "torch.distributed.launch"))
}

/// What may not begin the command of a launcher.
pub(super) fn check_command(launcher: Launcher, argv: &[String], command: &YamlNode, errors: &mut InventoryErrors) {
    let Some(first) = argv.first() else { return };
    let location = command.items().first().map_or(&command.location, |node| &node.location);
    match launcher {
        Launcher::Script => {}
        Launcher::Processes if is_launcher(argv) => errors.report(
            location,
            "the command contains the launcher: it would be started once per GPU",
            "use with: torchrun, accelerate or deepspeed, or begin with the program of a rank",
        ),
        Launcher::Processes => {}
        Launcher::Torchrun(_) | Launcher::Accelerate | Launcher::Deepspeed(_) => {
            check_worker_command(launcher, first, argv, location, errors)
        }
    }
}

/// torchrun, accelerate and deepspeed are built by us; the command begins with the script.
fn check_worker_command(launcher: Launcher, first: &str, argv: &[String], location: &SourceLocation, errors: &mut InventoryErrors) {
    let program = first.rsplit('/').next().unwrap_or_default();
    let word = launcher.as_str();
    let python = program.strip_prefix("python").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit() || b == b'.'));
    if is_launcher(argv) {
        let hint = format!("begin with the training script: `with: {word}` starts {word} with every flag it needs");
        errors.report(location, "the command contains the launcher", hint);
    } else if python {
        let hint = "begin with the script, or with -m and a module; launch.python names the interpreter";
        errors.report(location, format!("`{program}` is before the script"), hint);
    } else if matches!(program, "bash" | "sh") {
        let hint =
            "use `with: script` for a command that starts the ranks itself, or begin with --no_python for a rank that is no Python script";
        errors.report(location, format!("{word} cannot start `{program}`"), hint);
    } else if let Some(name) = flag_name(first).filter(|_| !matches!(first, "-m" | "--no_python" | "--no-python")) {
        // Its rendezvous is not known here.
        let more: &[&str] = if matches!(launcher, Launcher::Deepspeed(_)) { &DEEPSPEED_FLAGS } else { &[] };
        let owned = reserved_flags_of(launcher).iter().chain(more).copied();
        let hint = match nearest_word(&name, owned) {
            Some(flag) => reserved_flag_hint(flag, launcher),
            None => {
                format!("move it to launch.args: the command begins with the script, or with -m and a module; orchestrate adds {word}")
            }
        };
        errors.report(location, format!("`{}` is before the script", shorten(first)), hint);
    }
}

/// `launch.args`: words for the launcher itself. Flags are spelt with underscores: older torch rejects dashes
/// (huggingface/pytorch-image-models#1742), newer takes both.
pub(super) fn parse_launcher_args(launcher: Launcher, node: &YamlNode, errors: &mut InventoryErrors) -> Vec<String> {
    let items = errors.read_list(node, "for example [--mixed_precision, bf16]");
    let word = launcher.as_str();
    if matches!(launcher, Launcher::Processes | Launcher::Script) {
        let hint = "write the program and its arguments as `command`";
        errors.report(&node.location, format!("`with: {word}` has no launcher to pass arguments to"), hint);
        return Vec::new();
    }
    let mut words = Vec::new();
    for item in items {
        let Some(text) = errors.read_text(item) else { continue };
        let Some(name) = flag_name(&text).filter(|_| !item.is_unknown()) else {
            if words.is_empty() && !matches!(item.kind, YamlKind::Unknown(_)) {
                let message = format!("`{}` would be taken for the script", shorten(&text));
                errors.report(
                    &item.location,
                    message,
                    format!("options of {word} begin with -; write the script and its arguments as `command`"),
                );
            }
            words.push(text);
            continue;
        };
        if matches!(text.as_str(), "--" | "-m") {
            errors.report(&item.location, format!("`{text}` would end the options of {word}"), "move it to the beginning of `command`");
        } else if reserved_flags_of(launcher).contains(&name.as_str()) {
            errors.report(&item.location, format!("orchestrate sets `{}` itself", shorten(&text)), reserved_flag_hint(&name, launcher));
        }
        words.push(match (text.strip_prefix("--"), text.split_once('=')) {
            (None, _) => text,
            (Some(_), Some((_, value))) => format!("--{name}={value}"),
            (Some(_), None) => format!("--{name}"),
        });
    }
    words
}
