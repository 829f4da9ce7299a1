//! Lints of scripts and of the words of a command. A shell's text is searched, not parsed: a lint that is wrong can be allowed.

use regex::Regex;

use super::Look;
use crate::inventory::tree::{Kind, Node, Place, shorten};

/// A pattern in a shell's text, with what it means.
struct Rule {
    lint: &'static str,
    /// Where this is found,
    pattern: &'static str,
    /// and this is not,
    unless: &'static str,
    says: &'static str,
    hint: &'static str,
}

const RULES: [Rule; 17] = [
    Rule {
        lint: "rdzv-id-date",
        pattern: r"--rdzv[-_]id[= ]\S*(\$\(|`)",
        unless: "",
        says: "the rendezvous id is made on each host: two hosts that differ in it wait for each other until the join times out",
        hint: "use `with: torchrun`, whose id is made once, or write {{ run.id }}",
    },
    Rule {
        lint: "c10d-node-rank",
        pattern: r"(?s)--node[-_]rank.*rdzv[-_]backend[= ]\\?\s*c10d|rdzv[-_]backend[= ]c10d.*--node[-_]rank",
        unless: "",
        says: "with the c10d rendezvous --node_rank is ignored: any host may get rank 0",
        hint: "use the static rendezvous (--master_addr, --master_port), or leave --node_rank out",
    },
    Rule {
        lint: "date-per-host",
        pattern: r"\$\(\s*date\b|`\s*date\b",
        unless: "",
        says: "each host makes a date of its own: names differ between hosts",
        hint: "write {{ run.stamp }}, which is made once for the run",
    },
    Rule {
        lint: "torchrun-dashes",
        pattern: r"(torchrun|torch\.distributed\.run)[^;&|]*?--(nproc-per-node|node-rank|master-addr|master-port|rdzv-id|rdzv-backend|rdzv-endpoint|rdzv-conf|max-restarts|no-python)\b",
        unless: "",
        says: "older torchrun does not know flags that are spelt with dashes",
        hint: "spell them with underscores, which every version knows: --nproc_per_node",
    },
    Rule {
        lint: "torch-distributed-launch",
        pattern: r"torch\.distributed\.launch\b",
        unless: "",
        says: "torch.distributed.launch is the launcher of torch before 1.10: it puts --local_rank, later --local-rank, on each rank's command line",
        hint: "use torchrun, and read LOCAL_RANK from the environment",
    },
    Rule {
        lint: "max-restarts-static",
        pattern: r"--max[-_]restarts[= ][1-9]",
        unless: r"rdzv[-_]backend[= ]c10d|--standalone",
        says: "with the static rendezvous workers cannot be started again over several hosts",
        hint: "use rendezvous c10d, or leave --max_restarts out",
    },
    Rule {
        lint: "processes-by-hand",
        pattern: r"\$\(\(\s*\$?\{?(WORLD_SIZE|NNODES|RANK|NODE_RANK|GPU_COUNT|NPROC_PER_NODE)\}?\s*\*",
        unless: "",
        says: "numbers of processes are worked out by hand, from variables that mean hosts here and processes elsewhere",
        hint: "use ORCH_WORLD_SIZE (all processes), ORCH_NNODES and ORCH_GPUS_PER_NODE",
    },
    Rule {
        lint: "sbatch-in-script",
        pattern: r"(?m)^\s*#SBATCH|^\s*srun\s",
        unless: "",
        says: "this is for SLURM: no scheduler reads it here",
        hint: "take the lines out; the list of hosts and launch say where the ranks run",
    },
    Rule {
        lint: "background-command",
        pattern: r"(?m)\bnohup\b|[^&]&\s*\z",
        unless: r"(?m)^\s*wait\b",
        says: "the script ends while its command goes on in the background: the run counts as ended, and the command is stopped",
        hint: "leave out nohup and the last &: the run outlives the connection anyway",
    },
    Rule {
        lint: "redirected-output",
        pattern: r"(^|\s)(1|2|&)?>>?\s*[^\s&|;]*\.(log|out|txt)\b|\|\s*tee\b",
        unless: "",
        says: "output goes into a file of each host, where nobody follows it",
        hint: "leave the redirection out: every rank's output is kept and shown",
    },
    Rule {
        lint: "count-with-grep",
        pattern: r"ps\s[^\n]*\|\s*grep\s[^\n]*\|\s*wc\s+-l",
        unless: "",
        says: "counting with ps and grep counts the grep as well",
        hint: "leave it out: `orchestrate ps` shows how many ranks run",
    },
    Rule {
        lint: "tail-many",
        pattern: r"-exec\s+tail\s+-[fF]\s+\{\}\s*\\?;|tail\s+-[fF]\s+\S*%[xj]",
        unless: "",
        says: "tail follows only the first of these files, or a name with its placeholders in it",
        hint: "leave it out: `orchestrate logs -f` follows every rank",
    },
    Rule {
        lint: "hard-coded-rank",
        pattern: r"(?m)^\s*(export\s+)?(MASTER_ADDR|MASTER_PORT|RANK|LOCAL_RANK|NODE_RANK|WORLD_SIZE)=([^$\s]|\$\(scontrol)",
        unless: "",
        says: "a fixed value takes the place of the one that each host is given",
        hint: "leave the line out: these variables are set on every host",
    },
    Rule {
        lint: "unquoted-glob",
        pattern: r#"(?m)\s--\S+[= ][^\s"']*\*[^\s"']*(\s|$)"#,
        unless: "",
        says: "an unquoted * becomes names of files where some fit",
        hint: "quote the word: \"832*480\"",
    },
    Rule {
        lint: "jax-devices-by-hand",
        pattern: r"(?m)for\s+\w+\s+in\s+[^\n]*;?\s*do[\s\S]*--(local-rank|local_rank|process_id|process-id)[\s\S]*&\s*$",
        unless: "",
        says: "processes are started in a loop, with ranks worked out by hand",
        hint: "use `with: processes`: it starts one a GPU and tells each its rank and device",
    },
    Rule {
        lint: "no-errexit",
        pattern: r"\S[^\n]*\n\s*\S",
        unless: r"(?m)^\s*set\s+-\w*e|set\s+-o\s+errexit|(&&|\|\||\\)\s*\n",
        says: "a line that fails does not end the script: the next ones run all the same",
        hint: "begin with `set -euo pipefail`",
    },
    Rule {
        lint: "renamed-variable",
        pattern: r"\b(JAX_PLATFORM_NAME|NCCL_ASYNC_ERROR_HANDLING|NCCL_BLOCKING_WAIT)=",
        unless: "",
        says: "a variable that was renamed: newer versions warn, or do not read it",
        hint: "JAX_PLATFORMS, TORCH_NCCL_ASYNC_ERROR_HANDLING, TORCH_NCCL_BLOCKING_WAIT",
    },
];

pub(super) fn look(look: &mut Look<'_>) {
    let Some(launch) = look.tree.get("launch") else { return };
    for key in ["shell", "setup"] {
        if let Some(Node { place, kind: Kind::Scalar { text, .. } }) = launch.get(key) {
            shell(look, &text.clone(), &place.clone(), key == "shell");
        }
    }
    if let Some(command) = launch.get("command") {
        words(look, &command.clone());
    }
}

/// One shell's text. `main`: it is what runs, and not what comes before it.
fn shell(look: &mut Look<'_>, text: &str, place: &Place, main: bool) {
    for rule in &RULES {
        let matches = |pattern: &str| !pattern.is_empty() && Regex::new(pattern).is_ok_and(|regex| regex.is_match(text));
        if (main || rule.lint != "no-errexit") && matches(rule.pattern) && !matches(rule.unless) {
            look.find(rule.lint, place, rule.says, rule.hint);
        }
    }
    meaning(look, text, place);
    arch_list(look, text, place);
    unexported(look, text, place);
    if main && look.hosts > 1 && is(text, r"(?m)(^|[\s;&])deepspeed\s") && !text.contains("--no_ssh") {
        let hint = "use `with: deepspeed`, or give it --no_ssh, --node_rank and --hostfile \"$ORCH_HOSTFILE\"";
        look.find("deepspeed-pdsh", place, "deepspeed over several hosts wants pdsh and ssh between them", hint);
    }
}

fn is(text: &str, pattern: &str) -> bool {
    Regex::new(pattern).is_ok_and(|regex| regex.is_match(text))
}

/// TORCH_CUDA_ARCH_LIST in a script, which a build in it reads.
fn arch_list(look: &mut Look<'_>, text: &str, place: &Place) {
    let Ok(list) = Regex::new(r#"TORCH_CUDA_ARCH_LIST=["']?([0-9a-z.;, +A-Z]*)"#) else { return };
    if list.captures_iter(text).any(|found| super::env::misses_new_gpus(&found[1])) {
        look.find("cuda-arch-list", place, super::env::ARCH_SAYS, super::env::ARCH_HINT);
    }
}

/// WORLD_SIZE counts hosts under `script` and processes under `processes`.
fn meaning(look: &mut Look<'_>, text: &str, place: &Place) {
    let hosts = look.with == "script" && is(text, r#"--(num_processes|world[-_]size|num-processes)[= ]"?\$\{?WORLD_SIZE"#);
    let processes = look.with == "processes" && is(text, r#"--(nnodes|num_machines)[= ]"?\$\{?WORLD_SIZE"#);
    if hosts || processes {
        let (counts, wanted) = if hosts { ("hosts", "ORCH_WORLD_SIZE, which counts processes") } else { ("processes", "ORCH_NNODES") };
        look.find("world-size-meaning", place, format!("WORLD_SIZE counts {counts} under `with: {}`", look.with), format!("use {wanted}"));
    }
}

/// A line of assignments that reaches no process: `A=1 B=2` alone.
fn unexported(look: &mut Look<'_>, text: &str, place: &Place) {
    let Ok(line) = Regex::new(r#"(?m)^[ \t]*((?:[A-Z][A-Z0-9_]*=(?:"[^"\n]*"|'[^'\n]*'|[^\s"'`]*)[ \t]*)+)$"#) else { return };
    let Ok(name) = Regex::new(r"([A-Z][A-Z0-9_]*)=") else { return };
    const KNOWN: [&str; 9] = ["TORCH_", "DS_", "NCCL_", "CUDA_", "HF_", "XLA_", "JAX_", "GLOO_", "OMP_"];
    for found in line.captures_iter(text) {
        let names: Vec<&str> = name.captures_iter(&found[1]).filter_map(|c| c.get(1)).map(|m| m.as_str()).collect();
        let meant = names.len() > 1 || names.iter().any(|name| KNOWN.iter().any(|known| name.starts_with(known)));
        let used = |name: &&str| is(text, &format!(r"\$\{{?{name}\b|export\s[^\n]*\b{name}\b"));
        let lost: Vec<&str> = names.iter().filter(|name| !used(name)).copied().collect();
        if meant && !lost.is_empty() && !is(text, r"(?m)^\s*set\s+-\w*a") {
            let says = format!("{} set, but not exported: no program sees it", lost.join(", "));
            look.find("unexported-assignment", place, says, "write `export` before it, or set it under env");
        }
    }
}

/// The words of a command, which no shell reads; and a script that is handed to a shell as one word.
fn words(look: &mut Look<'_>, command: &Node) {
    let items: Vec<(String, Place)> = match &command.kind {
        Kind::Scalar { text, .. } => vec![(text.clone(), command.place.clone())],
        Kind::List(items) => items
            .iter()
            .filter_map(|item| match &item.kind {
                Kind::Scalar { text, .. } => Some((text.clone(), item.place.clone())),
                Kind::Unknown(_) | Kind::List(_) | Kind::Map(_) => None,
            })
            .collect(),
        Kind::Map(_) | Kind::Unknown(_) => return,
    };
    let all: Vec<&str> = items.iter().map(|(text, _)| text.as_str()).collect();
    let line = all.join(" ");
    if is(&line, r"(^|/)tail -[fF] /dev/null|(^|/)sleep (inf|infinity)\b") {
        let hint = "give the ranks' own command: containers are kept by orchestrate";
        look.find("idle-command", &command.place, "a command that does nothing and never ends", hint);
    }
    let shell_at = all.iter().position(|w| matches!(w.rsplit('/').next(), Some("bash" | "sh"))).filter(|_| all.len() > 2);
    let script_at = shell_at.and_then(|at| all.iter().skip(at).position(|w| w.starts_with('-') && w.ends_with('c')).map(|c| at + c + 1));
    for (index, (text, place)) in items.iter().enumerate() {
        if Some(index) == script_at {
            shell(look, text, place, true);
        } else if is(text, r"\$\(|`[^`]+`|\$\{?[A-Z_][A-Z0-9_]*\}?") {
            let says = format!("`{}` arrives as it stands: no shell reads the command", shorten(text));
            look.find(
                "unexpanded-word",
                place,
                says,
                "use a template, like {{ run.stamp }} or {{ host.rank }}, or launch.shell with `with: script`",
            );
        }
    }
}
