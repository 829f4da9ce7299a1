//! Lints of scripts and of the words of a command. A shell's text is searched, not parsed: a lint that is wrong can be allowed.

use regex::Regex;

use super::context::LintContext;
use super::env_lints::lint_renamed;
use crate::inventory::Launcher;
use crate::inventory::yaml_tree::{SourceLocation, YamlNode, shorten};

/// A pattern in a shell's text, with what it means.
struct ShellLint {
    lint: &'static str,
    /// Where this is found,
    pattern: &'static str,
    /// and this is not,
    unless: &'static str,
    message: &'static str,
    hint: &'static str,
}

const SHELL_LINTS: [ShellLint; 17] = [
    ShellLint {
        lint: "rdzv-id-date",
        pattern: r"--rdzv[-_]id[= ]\S*(\$\(|`)",
        unless: "",
        message: "each host makes its own rendezvous id: hosts with different ids wait for each other until the join times out",
        hint: "use `with: torchrun`, which makes one id for all, or write {{ run.id }}",
    },
    ShellLint {
        lint: "c10d-node-rank",
        pattern: r"(?s)--node[-_]rank.*rdzv[-_]backend[= ]\\?\s*c10d|rdzv[-_]backend[= ]c10d.*--node[-_]rank",
        unless: "",
        message: "with the c10d rendezvous --node_rank is ignored: any host may get rank 0",
        hint: "use the static rendezvous (--master_addr, --master_port), or remove --node_rank",
    },
    ShellLint {
        lint: "date-per-host",
        pattern: r"\$\(\s*date\b|`\s*date\b",
        unless: "",
        message: "each host evaluates the date itself: names differ between hosts",
        hint: "write {{ run.stamp }}, which is the same on all hosts",
    },
    ShellLint {
        lint: "torchrun-dashes",
        pattern: r"(torchrun|torch\.distributed\.run)[^;&|]*?--(nproc-per-node|node-rank|master-addr|master-port|rdzv-id|rdzv-backend|rdzv-endpoint|rdzv-conf|max-restarts|no-python)\b",
        unless: "",
        message: "older torchrun does not accept flags written with dashes",
        hint: "write them with underscores, which every version accepts: --nproc_per_node",
    },
    ShellLint {
        lint: "torch-distributed-launch",
        pattern: r"torch\.distributed\.launch\b",
        unless: "",
        message: "torch.distributed.launch is deprecated: it adds --local_rank (later --local-rank) to each rank's command line",
        hint: "use torchrun, and read LOCAL_RANK from the environment",
    },
    ShellLint {
        lint: "max-restarts-static",
        pattern: r"--max[-_]restarts[= ][1-9]",
        unless: r"rdzv[-_]backend[= ]c10d|--standalone",
        message: "with the static rendezvous workers on several hosts cannot be restarted",
        hint: "use rendezvous c10d, or remove --max_restarts",
    },
    ShellLint {
        lint: "processes-by-hand",
        pattern: r"\$\(\(\s*\$?\{?(WORLD_SIZE|NNODES|RANK|NODE_RANK|GPU_COUNT|NPROC_PER_NODE)\}?\s*\*",
        unless: "",
        message: "process counts are computed from variables that mean hosts here and processes elsewhere",
        hint: "use ORCH_WORLD_SIZE (all processes), ORCH_NNODES and ORCH_GPUS_PER_NODE",
    },
    ShellLint {
        lint: "sbatch-in-script",
        pattern: r"(?m)^\s*#SBATCH|^\s*srun\s",
        unless: "",
        message: "these lines are for SLURM: no scheduler reads them here",
        hint: "remove them; `hosts` and `launch` define where the ranks run",
    },
    ShellLint {
        lint: "background-command",
        pattern: r"(?m)\bnohup\b|[^&]&\s*\z",
        unless: r"(?m)^\s*wait\b",
        message: "the script ends while its command runs in the background: the run counts as ended, and the command is stopped",
        hint: "remove nohup and the last &: the run survives a lost connection anyway",
    },
    ShellLint {
        lint: "redirected-output",
        pattern: r"(^|\s)(1|2|&)?>>?\s*[^\s&|;]*\.(log|out|txt)\b|\|\s*tee\b",
        unless: "",
        message: "output goes into a file on each host, which `logs` does not show",
        hint: "remove the redirection: every rank's output is kept and shown",
    },
    ShellLint {
        lint: "count-with-grep",
        pattern: r"ps\s[^\n]*\|\s*grep\s[^\n]*\|\s*wc\s+-l",
        unless: "",
        message: "counting with ps and grep also counts the grep",
        hint: "remove it: `orchestrate ps` shows how many ranks run",
    },
    ShellLint {
        lint: "tail-many",
        pattern: r"-exec\s+tail\s+-[fF]\s+\{\}\s*\\?;|tail\s+-[fF]\s+\S*%[xj]",
        unless: "",
        message: "tail follows only the first of these files, or a name with unexpanded placeholders",
        hint: "remove it: `orchestrate logs -f` follows every rank",
    },
    ShellLint {
        lint: "hard-coded-rank",
        pattern: r"(?m)^\s*(export\s+)?(MASTER_ADDR|MASTER_PORT|RANK|LOCAL_RANK|NODE_RANK|WORLD_SIZE)=([^$\s]|\$\(scontrol)",
        unless: "",
        message: "a fixed value overrides the value that orchestrate sets on each host",
        hint: "remove the line: orchestrate sets these variables on every host",
    },
    ShellLint {
        lint: "hostname-ip",
        pattern: r"\bhostname\s+(--ip-address|--all-ip-addresses|-[iI])\b",
        unless: "",
        message: "hostname may answer 127.0.1.1, or an address that the other hosts do not reach",
        hint: "use MASTER_ADDR or ORCH_MASTER_ADDR, which orchestrate sets on every host",
    },
    ShellLint {
        lint: "unquoted-glob",
        pattern: r#"(?m)\s--\S+[= ][^\s"']*\*[^\s"']*(\s|$)"#,
        unless: "",
        message: "the shell expands an unquoted * to matching file names",
        hint: "put quotes around it: \"832*480\"",
    },
    ShellLint {
        lint: "jax-devices-by-hand",
        pattern: r"(?m)for\s+\w+\s+in\s+[^\n]*;?\s*do[\s\S]*--(local-rank|local_rank|process_id|process-id)[\s\S]*&\s*$",
        unless: "",
        message: "processes are started in a loop, with computed ranks",
        hint: "use `with: processes`: it starts one process per GPU and sets its rank and device",
    },
    ShellLint {
        lint: "no-errexit",
        pattern: r"\S[^\n]*\n\s*\S",
        unless: r"(?m)^\s*set\s+-\w*e|set\s+-o\s+errexit|(&&|\|\||\\)\s*\n",
        message: "a failing line does not end the script: the next lines still run",
        hint: "begin with `set -euo pipefail`",
    },
];

pub(super) fn lint_launch_text(context: &mut LintContext<'_>) {
    let Some(launch) = context.tree.get("launch") else { return };
    for key in ["shell", "setup"] {
        if let Some((node, text)) = launch.get(key).and_then(|node| Some((node, node.as_text()?))) {
            lint_script(context, text, &node.location, key == "shell");
        }
    }
    if let Some(command) = launch.get("command") {
        lint_command_words(context, command);
    }
}

/// One shell's text. `main`: it is what runs, and not what comes before it.
fn lint_script(context: &mut LintContext<'_>, text: &str, location: &SourceLocation, main: bool) {
    for rule in &SHELL_LINTS {
        let is_excused = !rule.unless.is_empty() && is_match(text, rule.unless);
        if (main || rule.lint != "no-errexit") && is_match(text, rule.pattern) && !is_excused {
            context.report(rule.lint, location, rule.message, rule.hint);
        }
    }
    lint_renamed(context, |old| is_match(text, &format!(r"\b{old}=")), location);
    lint_world_size_meaning(context, text, location);
    lint_arch_list(context, text, location);
    lint_unexported(context, text, location);
    if main && context.host_count > 1 && is_match(text, r"(?m)(^|[\s;&])deepspeed\s") && !text.contains("--no_ssh") {
        let hint = "use `with: deepspeed`, or give it --no_ssh, --node_rank and --hostfile \"$ORCH_HOSTFILE\"";
        context.report("deepspeed-pdsh", location, "deepspeed on several hosts needs pdsh and ssh between them", hint);
    }
}

pub(super) fn is_match(text: &str, pattern: &str) -> bool {
    Regex::new(pattern).is_ok_and(|regex| regex.is_match(text))
}

/// TORCH_CUDA_ARCH_LIST in a script, which a build in it reads.
pub(super) fn lint_arch_list(context: &mut LintContext<'_>, text: &str, location: &SourceLocation) {
    let Ok(list) = Regex::new(r#"TORCH_CUDA_ARCH_LIST=["']?([0-9a-z.;, +A-Z]*)"#) else { return };
    if list.captures_iter(text).any(|found| super::env_lints::lacks_hopper(&found[1])) {
        context.report("cuda-arch-list", location, super::env_lints::ARCH_MESSAGE, super::env_lints::ARCH_HINT);
    }
}

/// WORLD_SIZE counts hosts under `script` and processes under `processes`.
fn lint_world_size_meaning(context: &mut LintContext<'_>, text: &str, location: &SourceLocation) {
    let launcher = context.job.launch.launcher;
    let hosts = launcher == Launcher::Script && is_match(text, r#"--(num_processes|world[-_]size|num-processes)[= ]"?\$\{?WORLD_SIZE"#);
    let processes = launcher == Launcher::Processes && is_match(text, r#"--(nnodes|num_machines)[= ]"?\$\{?WORLD_SIZE"#);
    if hosts || processes {
        let (counts, wanted) = if hosts { ("hosts", "ORCH_WORLD_SIZE, which counts processes") } else { ("processes", "ORCH_NNODES") };
        context.report(
            "world-size-meaning",
            location,
            format!("WORLD_SIZE counts {counts} under `with: {}`", launcher.as_str()),
            format!("use {wanted}"),
        );
    }
}

/// A line of assignments that reaches no process: `A=1 B=2` alone.
pub(super) fn lint_unexported(context: &mut LintContext<'_>, text: &str, location: &SourceLocation) {
    let Ok(line) = Regex::new(r#"(?m)^[ \t]*((?:[A-Z][A-Z0-9_]*=(?:"[^"\n]*"|'[^'\n]*'|[^\s"'`]*)[ \t]*)+)$"#) else { return };
    let Ok(name) = Regex::new(r"([A-Z][A-Z0-9_]*)=") else { return };
    const EXPORTED_PREFIXES: [&str; 9] = ["TORCH_", "DS_", "NCCL_", "CUDA_", "HF_", "XLA_", "JAX_", "GLOO_", "OMP_"];
    for found in line.captures_iter(text) {
        let names: Vec<&str> = name.captures_iter(&found[1]).filter_map(|c| c.get(1)).map(|m| m.as_str()).collect();
        let meant = names.len() > 1 || names.iter().any(|name| EXPORTED_PREFIXES.iter().any(|known| name.starts_with(known)));
        let used = |name: &&str| is_match(text, &format!(r"\$\{{?{name}\b|export\s[^\n]*\b{name}\b"));
        let lost: Vec<&str> = names.iter().filter(|name| !used(name)).copied().collect();
        if meant && !lost.is_empty() && !is_match(text, r"(?m)^\s*set\s+-\w*a") {
            let message = format!("{} set but not exported: programs do not see it", lost.join(", "));
            context.report("unexported-assignment", location, message, "add `export`, or set it under env");
        }
    }
}

/// The words of a command, which no shell reads; and a script that is handed to a shell as one word.
fn lint_command_words(context: &mut LintContext<'_>, command: &YamlNode) {
    let items: Vec<(&str, &SourceLocation)> =
        command.items_or_self().iter().filter_map(|item| Some((item.as_text()?, &item.location))).collect();
    let all: Vec<&str> = items.iter().map(|(text, _)| *text).collect();
    let line = all.join(" ");
    if is_match(&line, r"(^|/)tail -[fF] /dev/null|(^|/)sleep (inf|infinity)\b") {
        let hint = "write the ranks' command: orchestrate keeps the container running";
        context.report("idle-command", &command.location, "the command does nothing and never ends", hint);
    }
    let shell_at = all.iter().position(|w| matches!(w.rsplit('/').next(), Some("bash" | "sh"))).filter(|_| all.len() > 2);
    let script_at = shell_at.and_then(|at| all.iter().skip(at).position(|w| w.starts_with('-') && w.ends_with('c')).map(|c| at + c + 1));
    for (index, (text, location)) in items.into_iter().enumerate() {
        if Some(index) == script_at {
            lint_script(context, text, location, true);
        } else if is_match(text, r"\$\(|`[^`]+`|\$\{?[A-Z_][A-Z0-9_]*\}?") {
            let message = format!("`{}` is passed on literally: no shell reads the command", shorten(text));
            context.report(
                "unexpanded-word",
                location,
                message,
                "use a template, for example {{ run.stamp }} or {{ host.rank }}, or launch.shell with `with: script`",
            );
        }
    }
}
