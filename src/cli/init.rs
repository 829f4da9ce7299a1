#![expect(clippy::disallowed_methods, reason = "reads the imported file and writes the inventory")]
//! `init`: writes a commented inventory, with hosts imported from another program's file.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;

use crate::cli::args::{DEFAULT_NAME, InitArgs};
use crate::cli::exit::CliError;
use crate::cli::local_env::{print_raw_unless_tty, print_stderr, user_lang};
use crate::event::Outcome;
use crate::inventory::import::{self, ImportFormat};
use crate::inventory::{ImportedHost, Inventory, InventorySource};

pub(crate) fn run(args: &InitArgs) -> Result<Outcome, CliError> {
    let (hosts, config) = match &args.from {
        None => (Vec::new(), None),
        Some(file) => read_import_file(file, &args.group)?,
    };
    let from = args.from.as_ref().map(|file| file.display().to_string());
    let text = import::write_inventory(&args.name, &hosts, from.as_deref(), config.as_deref());
    let output = args.file.as_ref().unwrap_or(&args.output);
    let name = output.display().to_string();
    // The written inventory must load.
    Inventory::load(&[InventorySource { name: name.clone(), text: text.clone() }], &[])?;
    if output == Path::new("-") {
        print_raw_unless_tty(&text);
        return Ok(Outcome::Ok);
    }
    let written = std::fs::File::create_new(output).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| {
        CliError::Usage(match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                let help = "choose another file: `orchestrate init FILE`; `orchestrate init -` writes to standard output";
                format!("{name} exists already\n    help: {help}")
            }
            _ => format!("{name}: cannot be created: {error}"),
        })
    })?;
    let host_count = crate::text::plural::count_noun(hosts.len().max(2), "host");
    let placeholders = match (args.name == DEFAULT_NAME, hosts.is_empty()) {
        (true, true) => "name (train), hosts (gpu01, gpu02) and launch.command (train.py)",
        (true, false) => "name (train) and launch.command (train.py)",
        (false, true) => "hosts (gpu01, gpu02) and launch.command (train.py)",
        (false, false) => "launch.command (train.py)",
    };
    print_stderr(&format!(
        "wrote {name}: {host_count}; replace the placeholders: {placeholders}\n    next: `orchestrate plan {}`",
        crate::text::shell_quote::quote(&name)
    ));
    Ok(Outcome::Ok)
}

fn read_import_file(file: &Path, groups: &[String]) -> Result<(Vec<ImportedHost>, Option<String>), CliError> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| CliError::Usage(format!("{name}: cannot be read: {error}")))?;
    let hint = "expected a hostfile (gpu01 slots=8), an Ansible inventory, an ssh_config, or one host per line";
    let (format, hosts) = import::read_hosts(&text).map_err(|error| CliError::Usage(format!("{name}: {error}\n    help: {hint}")))?;
    let hosts = import::select_groups(hosts, groups).map_err(|error| CliError::Usage(format!("{name}: {error}")))?;
    let lang = user_lang();
    let count = crate::text::plural::count_noun(hosts.len(), "host");
    print_stderr(&format!("{name}: {}{}{}", lang.message(import::describe_format(format)), lang.comma(), lang.message(&count)));
    let choice = import::describe_groups(&hosts);
    if groups.is_empty() && !choice.is_empty() {
        print_stderr(&format!("    groups: {choice}; `--group NAME` imports one of them"));
    }
    let not_imported: BTreeSet<&str> = hosts.iter().flat_map(|host| &host.not_imported).map(String::as_str).collect();
    if !not_imported.is_empty() {
        let names: Vec<&str> = not_imported.into_iter().collect();
        let names = names.join(", ");
        print_stderr(&lang.tr_fill("    not imported: {}; set what connections need under `ssh` or in ~/.ssh/config", &[&names]));
    }
    // ~/.ssh/config applies without being named.
    let is_default = file.ends_with(".ssh/config");
    let config = (format == ImportFormat::SshConfig && !is_default)
        .then(|| std::path::absolute(file).map_or(name, |path| path.display().to_string()));
    Ok((hosts, config))
}
