# cmake -DARCHIVE=FILE -DFOLDER=FOLDER -P UnpackFresh.cmake
#   Unpacks an archive into a folder that has nothing else afterwards.
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})
file(ARCHIVE_EXTRACT INPUT ${ARCHIVE} DESTINATION ${FOLDER})
