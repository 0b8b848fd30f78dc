//! What every runner does, described once and shown for processes and for containers.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod container_only;
mod environment;
mod errors;
mod fixture;
mod logs;
mod node_death;
mod pipes;
mod podman;
mod process_only;
mod stopping;

use fixture::Fixture;

/// Makes a test of each behaviour for each runner.
macro_rules! behaviours {
    ($($module:ident: $($name:ident),+;)+) => {
        mod process {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    crate::$module::$name(&crate::Fixture::process()).await;
                }
            )+)+
        }

        mod container {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    if let Some(fixture) = crate::Fixture::container().await {
                        crate::$module::$name(&fixture).await;
                    }
                }
            )+)+
        }
    };
}

behaviours! {
    environment:
        exit_codes_are_reported,
        the_environment_is_as_given,
        nothing_of_the_nodes_environment_is_inherited,
        private_files_are_in_reach_and_private,
        a_large_environment_arrives_whole,
        limits_hold,
        the_directory_is_removed_with_closed_directories;
    errors:
        a_command_that_is_not_there,
        a_file_that_is_no_program,
        a_launch_that_is_wrong;
    logs:
        both_streams_are_in_the_log,
        a_log_is_given_out_while_the_command_runs;
    pipes:
        two_inputs_reach_two_outputs,
        an_output_that_is_never_opened_is_empty,
        an_input_that_is_closed_early_breaks,
        an_input_that_is_never_opened_breaks,
        an_empty_input_ends,
        writers_may_come_one_after_the_other,
        much_data_needs_little_memory,
        a_command_that_nobody_reads_waits;
    stopping:
        stop_lets_the_command_finish,
        stop_kills_after_the_grace_time,
        kill_needs_no_grace,
        dropping_the_handle_kills,
        dropping_the_start_kills,
        stop_reaches_processes_that_left_the_group,
        the_end_of_a_command_ends_its_children,
        a_child_that_holds_the_output_does_not_delay_the_end,
        many_launches_at_once_leave_nothing;
}
