//! Reads any bytes as a journal: readable events go into the state, the rest is an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use orchestrate::diagnose::{Evidence, diagnose_run};
use orchestrate::report::journal::JournalReader;
use orchestrate::state::RunState;

fuzz_target!(|bytes: &[u8]| {
    // With our own header most inputs get past the first line.
    let mut whole = b"{\"format\":\"1.3\",\"orchestrate\":\"0.1.0\"}\n".to_vec();
    whole.extend_from_slice(bytes);
    for input in [bytes, &whole] {
        let Ok(mut reader) = JournalReader::new(input, "fuzzed") else { continue };
        let (mut state, mut evidence) = (RunState::new(), Evidence::with_built_in_rules());
        while let Ok(Some(event)) = reader.next_event() {
            state.apply(&event);
            evidence.apply(&event);
        }
        diagnose_run(&evidence, &state);
    }
});
