//! torchrun's command line. Pure.

use std::collections::BTreeMap;

use super::super::fake_program::has_word;

/// What torchrun was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TorchrunArgs {
    /// How many nodes must join.
    pub(super) nnodes: u32,
    /// Workers on this node.
    pub(super) nproc: u32,
    /// This node's rank, for the static rendezvous.
    pub(super) node_rank: u32,
    /// Where the rendezvous is.
    pub(super) master_addr: String,
    pub(super) master_port: u16,
    /// `static` or `c10d`.
    pub(super) rdzv_backend: String,
    /// `--rdzv_id`.
    pub(super) run_id: String,
    /// `--rdzv_conf`.
    pub(super) rdzv_conf: BTreeMap<String, String>,
    /// How often failed workers are started again.
    pub(super) max_restarts: u32,
    /// The command is a program of its own.
    pub(super) no_python: bool,
    /// The command is a module.
    pub(super) module: bool,
    /// The command and its arguments.
    pub(super) command: Vec<String>,
}

/// Options that take a value and change nothing here.
const IGNORED_OPTIONS: &str = "role monitor_interval start_method log_dir redirects tee local_ranks_filter local_addr logs_specs run_path event_log_handler \
     numa_binding signals_to_handle r t";

/// Options that take a value and mean something here.
const SUPPORTED_OPTIONS: &str =
    "nnodes nproc_per_node node_rank master_addr master_port rdzv_backend rdzv_endpoint rdzv_id rdzv_conf max_restarts";

/// What `--help` prints, in both spellings, as newer torch does.
pub(super) fn help_text() -> String {
    let options = SUPPORTED_OPTIONS.split_whitespace().chain(IGNORED_OPTIONS.split_whitespace()).filter(|name| name.len() > 1);
    let lines = options.map(|name| format!("  --{}, --{name} {}\n", name.replace('_', "-"), name.to_uppercase()));
    format!("usage: torchrun [-h] ... training_script ...\n\noptions:\n{}", lines.collect::<String>())
}

fn usage_error(text: &str) -> String {
    format!("usage: torchrun [-h] [--nnodes NNODES] [--nproc-per-node NPROC_PER_NODE] ... training_script ...\ntorchrun: error: {text}")
}

/// Reads the words; `gpus` is what `--nproc_per_node gpu` means here. The error is what torchrun prints before it exits with 2.
pub(super) fn parse_args(args: &[String], gpus: u32) -> Result<TorchrunArgs, String> {
    let mut given: BTreeMap<String, String> = BTreeMap::new();
    let mut rest = args.iter();
    let mut command = Vec::new();
    while let Some(word) = rest.next() {
        let Some(name) = word.strip_prefix("--").or_else(|| word.strip_prefix('-').filter(|w| w.len() == 1)) else {
            command.push(word.clone());
            command.extend(rest.cloned());
            break;
        };
        let (name, value) = name.split_once('=').map_or((name, None), |(n, v)| (n, Some(v.to_owned())));
        let name = name.replace('-', "_");
        match name.as_str() {
            "no_python" | "module" | "m" | "standalone" => {
                given.insert(if name == "m" { "module".to_owned() } else { name }, String::new());
            }
            _ if has_word(SUPPORTED_OPTIONS, &name) => {
                let value = value
                    .or_else(|| rest.next().cloned())
                    .ok_or_else(|| usage_error(&format!("argument --{name}: expected one argument")))?;
                given.insert(name, value);
            }
            _ if has_word(IGNORED_OPTIONS, &name) => {
                if value.is_none() {
                    rest.next();
                }
            }
            _ => return Err(usage_error(&format!("unrecognized arguments: {word}"))),
        }
    }
    if command.is_empty() {
        return Err(usage_error("the following arguments are required: training_script, training_script_args"));
    }
    build_args(&given, command, gpus)
}

fn build_args(given: &BTreeMap<String, String>, command: Vec<String>, gpus: u32) -> Result<TorchrunArgs, String> {
    let text = |name: &str, default: &str| given.get(name).cloned().unwrap_or_else(|| default.to_owned());
    let number = |name: &str, default: &str| {
        text(name, default)
            .parse::<u32>()
            .map_err(|_| usage_error(&format!("argument --{name}: invalid int value: '{}'", text(name, default))))
    };
    let nproc = match text("nproc_per_node", "1").as_str() {
        "gpu" | "auto" => gpus.max(1),
        "cpu" => std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1)),
        n => n.parse().map_err(|_| format!("ValueError: Unsupported nproc_per_node value: {n}"))?,
    };
    let standalone = given.contains_key("standalone");
    let nnodes = text("nnodes", "1:1");
    let backend = if standalone { "c10d".to_owned() } else { text("rdzv_backend", "static") };
    let endpoint = text("rdzv_endpoint", "");
    let (address, port) = match (endpoint.is_empty(), endpoint.rsplit_once(':')) {
        (true, _) => (text("master_addr", "127.0.0.1"), text("master_port", if standalone { "0" } else { "29500" })),
        (false, Some((address, port))) => (address.trim_matches(['[', ']']).to_owned(), port.to_owned()),
        (false, None) => (endpoint, "29400".to_owned()),
    };
    let conf = text("rdzv_conf", "");
    let args = TorchrunArgs {
        nnodes: nnodes
            .split(':')
            .next()
            .unwrap_or("1")
            .parse()
            .map_err(|_| format!("ValueError: invalid literal for int() with base 10: '{nnodes}'"))?,
        nproc,
        node_rank: number("node_rank", "0")?,
        master_port: port.parse().map_err(|_| {
            format!("ValueError: The port number of the rendezvous endpoint '{address}:{port}' must be an integer between 0 and 65536.")
        })?,
        master_addr: address,
        rdzv_backend: backend,
        run_id: text("rdzv_id", "none"),
        rdzv_conf: conf.split(',').filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
        max_restarts: number("max_restarts", "0")?,
        no_python: given.contains_key("no_python"),
        module: given.contains_key("module"),
        command,
    };
    if args.no_python && args.module {
        return Err("ValueError: Don't use both the '--no_python' flag and the '--module' flag at the same time.".to_owned());
    }
    if args.rdzv_backend != "static" && args.rdzv_backend != "c10d" {
        return Err(format!(
            "ValueError: The rendezvous backend '{}' is not registered. Did you forget to call `register`?",
            args.rdzv_backend
        ));
    }
    Ok(args)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<TorchrunArgs, String> {
        parse_args(&line.split(' ').map(str::to_owned).collect::<Vec<_>>(), 8)
    }

    #[test]
    fn both_option_spellings_are_accepted() {
        let args =
            parse_line("--nnodes=2 --nproc-per-node 5 --node_rank 1 --master_addr 10.0.0.1 --master-port=29501 --no_python /w --x -y")
                .expect("args");
        assert_eq!((args.nnodes, args.nproc, args.node_rank, args.master_port), (2, 5, 1, 29501));
        assert_eq!((args.master_addr.as_str(), args.rdzv_backend.as_str()), ("10.0.0.1", "static"));
        assert!(args.no_python);
        assert_eq!(args.command, ["/w", "--x", "-y"]);
    }

    #[test]
    fn c10d_reads_rdzv_endpoint() {
        let args = parse_line("--nnodes 2:4 --rdzv_backend=c10d --rdzv_endpoint=[::1]:4000 --rdzv_id=r7 --rdzv_conf=is_host=1,timeout=9 --nproc_per_node gpu t.py")
            .expect("args");
        assert_eq!((args.master_addr.as_str(), args.master_port, args.nproc, args.run_id.as_str()), ("::1", 4000, 8, "r7"));
        assert_eq!(args.rdzv_conf.get("is_host").map(String::as_str), Some("1"));
    }

    #[test]
    fn invalid_options_are_rejected() {
        assert!(parse_line("--nope t.py").expect_err("unknown").contains("unrecognized arguments: --nope"));
        assert!(parse_line("--nnodes 2").expect_err("no script").contains("training_script"));
        assert!(parse_line("--no_python -m x").expect_err("both").contains("at the same time"));
        assert!(parse_line("--rdzv_backend etcd t.py").expect_err("backend").contains("'etcd' is not registered"));
    }
}
