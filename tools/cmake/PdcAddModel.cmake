# pdc_add_library(NAME MODEL [GENERATE] [MICROBATCH N] [THREADS N] [DEFINE name=value...] [ARGS option...])
#
# Adds the imported target NAME: libNAME.so with its header NAME.h, which `pdc library` builds of a .pdm file or a Hugging Face
# folder in CMAKE_CURRENT_BINARY_DIR/NAME.library. GENERATE: NAME_generate() instead of NAME_run().
function(pdc_add_library name model)
  cmake_parse_arguments(PARSE_ARGV 2 arg "GENERATE" "MICROBATCH;THREADS" "DEFINE;ARGS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "pdc_add_library(${name}): unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  get_filename_component(model "${model}" ABSOLUTE)
  get_filename_component(stem "${model}" NAME_WLE)
  set(options --name "${name}")
  if(arg_GENERATE)
    list(APPEND options --generate)
  endif()
  foreach(argument MICROBATCH THREADS)
    if(DEFINED arg_${argument})
      string(TOLOWER ${argument} option)
      list(APPEND options --${option} "${arg_${argument}}")
    endif()
  endforeach()
  foreach(definition IN LISTS arg_DEFINE)
    list(APPEND options -D "${definition}")
  endforeach()
  set(directory "${CMAKE_CURRENT_BINARY_DIR}/${name}.library")
  set(library "${directory}/lib${name}.so")
  set(depends "${model}")
  if(IS_DIRECTORY "${model}")
    set(depends "${model}/config.json")
    get_filename_component(stem "${model}" NAME)
  endif()
  add_custom_command(
    OUTPUT "${library}" "${directory}/${name}.h"
    COMMAND "${Pdc_EXECUTABLE}" library -MD -MT "${library}" -o "${directory}" ${options} ${arg_ARGS} "${model}"
    COMMAND "${CMAKE_COMMAND}" -E touch "${library}"
    MAIN_DEPENDENCY "${depends}"
    DEPENDS "${Pdc_EXECUTABLE}"
    DEPFILE "${directory}/${stem}.d"
    COMMENT "Building the library of ${stem}"
    VERBATIM)
  add_custom_target(${name}_library DEPENDS "${library}")
  set_target_properties(${name}_library PROPERTIES ADDITIONAL_CLEAN_FILES "${directory}")
  file(MAKE_DIRECTORY "${directory}") # CMake wants the folder of headers
  add_library(${name} SHARED IMPORTED GLOBAL)
  set_target_properties(${name} PROPERTIES IMPORTED_LOCATION "${library}" INTERFACE_INCLUDE_DIRECTORIES "${directory}")
  add_dependencies(${name} ${name}_library)
endfunction()

# pdc_add_model(NAME MODEL.pdm
#               [STAGES S] [RANKS N] [SCHEDULE NAME] [TARGET c|cuda] [DEFINE name=value...] [ARGS option...] [EXCLUDE_FROM_ALL])
#
# Adds a target NAME that builds the model's stage programs in CMAKE_CURRENT_BINARY_DIR/NAME.build; `mpirun -n N
# NAME.build/train ...` launches them. They are built again when the model, a file that it uses, a standard layer or
# pdc changes. ARGS are further options of pdc, as "--memory;8GiB". The target's property PDC_DIRECTORY is the folder.
function(pdc_add_model name model)
  cmake_parse_arguments(PARSE_ARGV 2 arg "EXCLUDE_FROM_ALL" "STAGES;RANKS;SCHEDULE;TARGET" "DEFINE;ARGS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "pdc_add_model(${name}): unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  get_filename_component(model "${model}" ABSOLUTE)
  get_filename_component(stem "${model}" NAME_WLE)
  set(options)
  foreach(pair "STAGES --stages" "RANKS -n" "SCHEDULE --schedule" "TARGET --target")
    string(REPLACE " " ";" pair "${pair}")
    list(GET pair 0 argument)
    list(GET pair 1 option)
    if(DEFINED arg_${argument})
      list(APPEND options ${option} "${arg_${argument}}")
    endif()
  endforeach()
  foreach(definition IN LISTS arg_DEFINE)
    list(APPEND options -D "${definition}")
  endforeach()
  set(directory "${CMAKE_CURRENT_BINARY_DIR}/${name}.build")
  set(launcher "${directory}/train")
  if("--infer" IN_LIST arg_ARGS)
    set(launcher "${directory}/infer")
  elseif("--generate" IN_LIST arg_ARGS)
    set(launcher "${directory}/generate")
  endif()
  add_custom_command(
    OUTPUT "${launcher}"
    COMMAND "${Pdc_EXECUTABLE}" -MD -MT "${launcher}" -o "${directory}" ${options} ${arg_ARGS} "${model}"
    COMMAND "${CMAKE_COMMAND}" -E touch "${launcher}"
    MAIN_DEPENDENCY "${model}"
    DEPENDS "${Pdc_EXECUTABLE}"
    DEPFILE "${directory}/${stem}.d"
    COMMENT "Building stage programs of ${stem}"
    VERBATIM)
  if(arg_EXCLUDE_FROM_ALL)
    add_custom_target(${name} DEPENDS "${launcher}")
  else()
    add_custom_target(${name} ALL DEPENDS "${launcher}")
  endif()
  set_target_properties(${name} PROPERTIES PDC_DIRECTORY "${directory}" ADDITIONAL_CLEAN_FILES "${directory}")
endfunction()
