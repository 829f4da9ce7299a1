#![expect(clippy::disallowed_methods, reason = "reads the file it is given and writes the inventory")]
//! `init`: writes a commented inventory, with the hosts of another program's file where one is given.

use std::io::Write as _;
use std::path::Path;

use crate::cli::args::InitArgs;
use crate::cli::exit::CliError;
use crate::cli::local_env::{print_raw_unless_tty, print_stderr};
use crate::event::Outcome;
use crate::inventory::import::{self, ImportFormat};
use crate::inventory::{Inventory, InventorySource};

/// Runs it.
///
/// # Errors
/// What must be said to the person.
pub(crate) fn run(args: &InitArgs) -> Result<Outcome, CliError> {
    let (hosts, config) = match &args.from {
        None => (Vec::new(), None),
        Some(file) => read_import_file(file)?,
    };
    let from = args.from.as_ref().map(|file| file.display().to_string());
    let text = import::write_inventory(&args.name, &hosts, from.as_deref(), config.as_deref());
    let name = args.output.display().to_string();
    // What we write must be what we read.
    Inventory::load(&[InventorySource { name: name.clone(), text: text.clone() }], &[])?;
    if args.output == Path::new("-") {
        print_raw_unless_tty(&text);
        return Ok(Outcome::Ok);
    }
    let made = std::fs::File::create_new(&args.output).and_then(|mut file| file.write_all(text.as_bytes()));
    made.map_err(|error| {
        let hint = if error.kind() == std::io::ErrorKind::AlreadyExists {
            "\n    help: choose another with -o, or `-o -` for standard output"
        } else {
            ""
        };
        CliError::Usage(format!("{name}: cannot be made: {error}{hint}"))
    })?;
    print_stderr(&format!(
        "{name}: {}; edit `launch`, then `orchestrate plan {}`",
        crate::report::style::count_noun(hosts.len().max(2), "host"),
        crate::text::shell_quote::quote(&name)
    ));
    Ok(Outcome::Ok)
}

fn read_import_file(file: &Path) -> Result<(Vec<import::ImportedHost>, Option<String>), CliError> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| CliError::Usage(format!("{name}: cannot be read: {error}")))?;
    let hint = "a hostfile (gpu01 slots=8), an Ansible inventory, an ssh_config, or one host per line";
    let (form, hosts) = import::read_hosts(&text).map_err(|why| CliError::Usage(format!("{name}: {why}\n    help: {hint}")))?;
    print_stderr(&format!("{name}: {}, {}", import::describe_format(form), crate::report::style::count_noun(hosts.len(), "host")));
    // The user's own file applies anyway.
    let own = file.ends_with(".ssh/config");
    let config =
        (form == ImportFormat::SshConfig && !own).then(|| std::path::absolute(file).map_or(name, |path| path.display().to_string()));
    Ok((hosts, config))
}
