//! What a host knows of a run that failed there: docker's word on the container, the kernel's log, full disks.
//!
//! The lines are described in `assets/postmortem.sh`.

use std::time::Duration;

use crate::model::remote_command::RemoteCommand;
use crate::plan::host_context::{HostContext, SAFE_READ_SH};
use crate::text::shell_quote::quote;

/// How long a host is waited for.
pub const POSTMORTEM_TIMEOUT: Duration = Duration::from_secs(10);
/// The most lines of a host.
const MAX_LINES: usize = 60;

pub fn postmortem_command(context: &HostContext) -> RemoteCommand {
    let mut script = format!(
        "{}F={}\ncontainer=\ninit=\nboot=\n{{ read -r boot <{}; }} 2>/dev/null\n",
        context.script_preamble(),
        quote(&context.run_file_prefix()),
        quote(&context.boot_id_path())
    );
    if context.in_container {
        script.push_str(&format!(
            "container={}\n{{ read -r init _ <\"$P/container.pid\"; }} 2>/dev/null\n",
            quote(&context.container_name())
        ));
    }
    script.push_str(SAFE_READ_SH);
    script.push_str(include_str!("../../assets/postmortem.sh"));
    RemoteCommand::from_script("collect failure details from the host", script, POSTMORTEM_TIMEOUT).with_output_limit(64 << 10)
}

/// The lines of an answer.
pub fn parse_postmortem(text: &str) -> Vec<String> {
    text.lines().filter(|line| !line.trim().is_empty()).take(MAX_LINES).map(str::to_owned).collect()
}
